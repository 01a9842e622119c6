"""One machine: zygotes, the supervisor of replicas, the guard, and the inspection of hostile bundles."""
