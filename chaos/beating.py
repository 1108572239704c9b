"""A beat's three steps: sent, applied at the database, answered. Others fall between them."""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.rules import Side
from ..cluster.view import Assignment
from .protocol import LATER, NOW, Answer, Beat, Ground, Move, Pod, Process, Setting, without
from .rulebook import Rulebook


def beating(pod: Pod, ground: Ground, setting: Setting, rules: Rulebook) -> Iterator[Move]:
    """What can happen to the beats of one pod, shares apart, which depend on the others' rows."""
    me = pod.process
    if me is not None and me.up:
        if len(pod.beats) + len(pod.answers) < setting.beats:
            beat = beat_of(me, rules)
            words = f"{{}} sends a beat: acts on {beat.said.acts}, uses {beat.said.uses}"
            yield Move(words, pod._replace(beats=(*pod.beats, beat)))
        for target in pod.notices:
            after = pod._replace(process=me._replace(target=target), notices=())
            yield Move(f"{{}} hears a notice that says its target is {target}", after)
    for beat in sorted(set(pod.beats)):
        applied_to = applied(pod, beat, ground, rules)
        if applied_to is not None:
            yield Move(told(pod, applied_to, beat), applied_to)
        if setting.snapshots and beat.seen < 0 and pod.slots is not None:
            seen = (*without(pod.beats, beat), beat._replace(seen=pod.slots.target))
            yield Move(
                f"a beat of {{}} waits; its snapshot has the target {pod.slots.target}",
                pod._replace(beats=seen),
            )
    for answer in sorted(set(pod.answers)):
        yield Move("an answer to {} is lost", pod._replace(answers=without(pod.answers, answer)))
        yield Move(f"{{}} hears an answer: its target is {answer.target}", heard(pod, answer, rules))


def beat_of(me: Process, rules: Rulebook) -> Beat:
    """The beat this process would send now."""
    return Beat(me.incarnation, me.timeline, me.heard, rules.said(side_of(me, rules)))


def side_of(me: Process, rules: Rulebook) -> Side:
    """The process as it sees itself."""
    return rules.side(me.claims, me.timeline, me.heard, me.target)


def applied(pod: Pod, beat: Beat, ground: Ground, rules: Rulebook) -> Pod | None:
    """The pod after a beat came to the database; None when it was refused.

    A refusal is not told to the process: it may fence itself at any time, so that nothing new can
    come of it.
    """
    row = pod.row
    # A row of the lost server, at its oldest.
    now = NOW if row is None or row.timeline == ground.timeline else LATER
    verdict = rules.verdict(row, beat.incarnation, now=now, timeline=ground.timeline, unsure=ground.settling)
    if row is None or verdict != "beaten":
        return None
    latest = rules.latest(row, beat.heard, beat.heard_on, ground.timeline)
    learns = beat.heard_on != ground.timeline
    after = pod._replace(
        row=rules.after_answering(row, now=NOW, timeline=ground.timeline),
        slots=rules.after_beat(pod.slots, beat.said, latest=latest, learns=learns, unsure=ground.settling),
        beats=without(pod.beats, beat),
    )
    return answering(after, beat, ground)


def answering(pod: Pod, beat: Beat, ground: Ground) -> Pod:
    """The pod with an answer to this beat under way, which tells what the rows say now."""
    assert pod.row is not None
    target = pod.slots.target if pod.slots else 0
    if beat.seen >= 0:
        target = beat.seen
    answer = Answer(beat.incarnation, ground.timeline, pod.row.answer, target)
    return pod._replace(answers=(*pod.answers, answer))


def heard(pod: Pod, answer: Answer, rules: Rulebook) -> Pod:
    """The pod once its process has heard an answer."""
    me = pod.process
    assert me is not None
    side = rules.after_answer(side_of(me, rules), answer.timeline, answer.number, answer.target)
    me = me._replace(timeline=side.timeline, heard=side.heard, target=side.target)
    return pod._replace(process=me, answers=without(pod.answers, answer))


def told(before: Pod, after: Pod, beat: Beat) -> str:
    """What a beat did, in words."""
    was, now = before.slots or Assignment(), after.slots or Assignment()
    me = before.process
    late = "a late beat of an earlier boot" if me and beat.incarnation != me.incarnation else "a beat"
    said = f"acts on {beat.said.acts}, uses {beat.said.uses}"
    if was == now:
        return f"{late} of {{}} ({said}) is applied"
    return f"{late} of {{}} ({said}) is applied: {_changed(was, now)}"


def _changed(was: Assignment, now: Assignment) -> str:
    pairs = zip(Assignment._fields, was, now, strict=True)
    return ", ".join(f"{name} {before}→{after}" for name, before, after in pairs if before != after)
