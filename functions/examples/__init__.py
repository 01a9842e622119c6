"""Real functions: the bundles that the demo, the tests and the benchmarks deploy, and the script that builds them."""
