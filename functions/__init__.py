"""What a function is: names, errors, tensors, configurations, graphs, records and wire formats; pure, no network, no processes."""
