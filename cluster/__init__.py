"""Decides who may run how much.

So far one thing: `membership`, this pod in the cluster. The lease, the planner and the slots
come with the cluster-wide cap.
"""
