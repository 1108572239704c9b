"""Runs handlers."""
