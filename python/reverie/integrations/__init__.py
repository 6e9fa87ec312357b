"""Reverie inside other libraries. Each module imports its library, and has an extra of its own."""
