"""Breaks a running cluster on purpose and judges what happened."""
