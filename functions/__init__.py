"""What a function is: names, errors, tensors, configurations, graphs, records, wire formats; pure, no network, no processes, but for ``examples``."""
