"""Decides who may run how much.

A slot's life, in reading order:

    ../storage/queues      an operator says how many jobs of a queue may run at once, in the whole cluster
    lease, leader          one pod holds the lease and leads
    membership, identity   every pod says that it lives, and what it uses; once it cannot, it stops
    view                   the leader's picture of queues, pods and assignments
    picture                ... read from the database
    planner, sentence      the targets computed from it, pure, and told in words
    rebalancer             the leader's loop: look, plan, write what changed
    rules                  what may be written: the protocol, pure; storage/migrations/0003_the_rota.sql says
                           the same in SQL, and chaos/explorer searches every state it can reach
    ../storage/assignments the rows: target, held, acting
    handover               how far a queue's slots have come, for operators, pure
    slots                  this pod's side: a beat brought its targets; claims take slots, outcomes give
                           them back, and the next beat says so
    ../runtime/claimer     the slot runs a job

The invariant all of it keeps: `held` is an upper bound on what a pod may be using, and its sum over the
pods is never raised above the queue's cap.
"""
