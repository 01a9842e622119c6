"""What a bundle's ``model.py`` imports as ``triton_python_backend_utils``: the request/response part of Triton's Python backend API."""
