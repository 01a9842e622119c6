"""One replica: a process that holds one version's whole closure and runs its batches."""
