"""The public HTTP interface, one noun a file; everything but infer, which takes the express lane."""
