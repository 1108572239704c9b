"""Runs handlers.

A job's life, in reading order:

    app         a handler is registered, a job enqueued
    codec       its payload becomes JSON, checked
    enqueuer    concurrent callers share one insert
    ../storage/jobs, ../storage/migrations
                the job waits in Postgres
    promoter    a scheduled one becomes ready when due
    listener    a notice wakes the pod
    claimer     it is claimed into a slot
    worker      its handler runs
    handlers    ... called with context and payload, through middleware
    outcome, backoff
                what happened becomes an outcome
    finalizer   the outcome travels back, with the next claim
    results     whoever waited is told

Beside it: `pod` holds it all together, `heart` says that the pod lives, `janitor` gives the jobs of
silent pods to others, `settler` settles claims whose answer never came, and `queues` lets operators look
at queues and change them while all of it runs.
"""
