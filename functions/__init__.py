"""What a function is: names, errors, tensors, configurations, graphs, records, formats; no network, no processes (``examples`` apart)."""
