"""Where versions are kept: blobs, records and tags in an object store, and the rules by which tags move."""
