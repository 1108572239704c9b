"""Decides who may run how much."""
