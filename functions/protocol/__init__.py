"""What travels: the frames between a router and a replica, and the KServe v2 bodies they carry."""
