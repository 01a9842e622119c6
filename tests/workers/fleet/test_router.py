"""The router against replicas that speak real frames over real sockets, and nodes that say what the test says."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from functions.errors import (
    AuthorHung,
    DeadlineExceeded,
    DespinaError,
    Draining,
    InvalidRequest,
    ModelFailed,
    NoCapacity,
    NodeUnreachable,
    NotFound,
    QueueFull,
    ReplicaDied,
    StartFailed,
)
from functions.names import Ref
from functions.protocol import frames
from functions.protocol.frames import Kind
from tests.workers.fleet.conftest import MakeReplica
from tests.workers.fleet.fakes import Answer, FakeNodes, FakeReplica, until
from workers.fleet import lines
from workers.fleet.events import Refused, Vanished
from workers.fleet.links import EARLY_PARTS
from workers.fleet.router import MAX_RETURNS, Router
from workers.fleet.terms import Terms
from workers.node.messages import State, VersionEvent
from workers.process import page

F = Ref("f", 1)
G = Ref("g", 2)


def submit(router: Router, count: int = 1, ref: Ref = F, **fields: object) -> list[Answer]:
    answers = [Answer(ref, f"{number}".encode(), **fields) for number in range(count)]  # type: ignore[arg-type]
    for answer in answers:
        router.submit(answer.call)
    return answers


async def serve(router: Router, nodes: FakeNodes, replica: FakeReplica) -> FakeReplica:
    nodes.tell(replica.event)
    pool = router.pool(replica.event.ref)
    before = len(pool.links)
    await until(lambda: len(pool.links) > before)
    return replica


async def failure(answer: Answer, kind: type[DespinaError]) -> str:
    error = await answer.result()

    assert kind is type(error)
    return str(error)


# -- the way of a call ------------------------------------------------------------------------------------------------


async def test_a_call_travels_with_what_its_door_said_and_its_reply_comes_back(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F))
    answer = Answer(F, b"header and tensors", header_length=6, flags=16, hops=2, context=b'{"a":1}')
    router.submit(answer.call)
    frame = await target.next()
    head, context, body = frames.read_call(memoryview(frame.payload))

    assert (6, 0, 2, b'{"a":1}', b"header and tensors") == (head.header_length, head.priority, head.hops, bytes(context), bytes(body))
    assert 4_000_000 < head.remaining_us <= 5_000_000

    target.reply(frame.id, b"answer")

    assert b"answer" == await answer.result()
    assert 0 == router.bytes_in_flight
    assert {} == router.backlog()


async def test_a_link_says_hello_with_the_token_digest_and_epoch_the_node_announced(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F))

    assert frames.hello(bytes.fromhex(target.event.token), b"\xab" * 32, 7)[16:] == target.hello


async def test_calls_at_zero_wait_and_ask_the_nodes_at_once_for_one_replica(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    answers = submit(router, 3)

    assert [(F, 1)] == nodes.wants
    assert {F: (3, 0)} == router.backlog()

    target = await serve(router, nodes, await replica(F, echo=True))

    assert [b"0", b"1", b"2"] == [await answer.result() for answer in answers]
    assert 1 == target.connections


async def test_a_replica_never_holds_more_calls_than_its_credit(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F, credit=2))
    answers = submit(router, 4)
    first, second = await target.calls(2)

    assert {F: (2, 2)} == router.backlog()
    assert target.received.empty()

    target.reply(second.id)
    third = await target.next()

    assert b"2" == third.body
    assert target.received.empty()

    target.send(frames.ready(3, 1, 1))
    fourth = await target.next()
    for frame in (first, third, fourth):
        target.reply(frame.id, frame.body)

    assert [b"0", b"", b"2", b"3"] == [await answer.result() for answer in answers]


async def test_the_replica_with_the_fewest_calls_gets_the_next(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    one = await serve(router, nodes, await replica(F, credit=4))
    two = await serve(router, nodes, await replica(F, credit=2))
    submit(router, 6)

    assert [b"0", b"2", b"4", b"5"] == [frame.body for frame in await one.calls(4)]
    assert [b"1", b"3"] == [frame.body for frame in await two.calls(2)]


async def test_a_few_calls_of_one_turn_of_the_loop_leave_in_one_write(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F, credit=5))
    reads = target.reads
    submit(router, 3)
    await target.calls(3)

    assert reads + 1 == target.reads


async def test_many_calls_of_one_turn_leave_in_few_writes_and_the_first_ones_early(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F, credit=40))
    reads = target.reads
    submit(router, 40)
    await target.calls(40)

    assert target.reads - reads <= 40 * 2 / EARLY_PARTS


async def test_large_bodies_are_passed_on_whole(nodes: FakeNodes, replica: MakeReplica) -> None:
    wide = Router(nodes, lambda _ref: Terms(), lambda _caller, name: Ref(name, 1))
    await serve(wide, nodes, await replica(F, echo=True))
    body = bytes(range(256)) * 40_000
    answer = Answer(F, body)
    wide.submit(answer.call)

    assert body == await answer.result()
    await wide.close(0.0)


async def test_a_failure_reaches_its_caller_as_the_error_its_number_names(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    target.send(frames.failure((await target.next()).id, ModelFailed.wire, "division by zero"))

    assert "division by zero" == await failure(answer, ModelFailed)


async def test_a_door_that_raises_in_its_callback_does_not_harm_the_other_calls(
    router: Router, nodes: FakeNodes, replica: MakeReplica, caplog: pytest.LogCaptureFixture
) -> None:
    await serve(router, nodes, await replica(F, echo=True))
    broken, sound = Answer(F, b"broken"), Answer(F, b"sound")
    broken.call.on_reply = lambda *_: 1 / 0  # type: ignore[assignment,return-value]
    router.submit(broken.call)
    router.submit(sound.call)

    assert b"sound" == await sound.result()
    assert "door_callback_failed" in caplog.text


# -- bounds -----------------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_with_an_error_that_says_try_again(router: Router) -> None:
    answers = submit(router, 6)

    assert "f@1: 5 calls wait already" in await failure(answers[5], QueueFull)
    assert QueueFull.retry
    assert not any(answer.ended for answer in answers[:5])


async def test_bytes_in_flight_are_bounded_and_given_back(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    waiting, refused = Answer(F, b"x" * 6_000), Answer(F, b"x" * 6_000)
    router.submit(waiting.call)
    router.submit(refused.call)

    assert "over the limit, 10000" in await failure(refused, QueueFull)
    assert 6_000 == router.bytes_in_flight

    await serve(router, nodes, await replica(F, echo=True))
    await waiting.result()

    assert 0 == router.bytes_in_flight


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"hops": 9}, InvalidRequest), ({"context": b"x" * 65_536}, InvalidRequest), ({"timeout_s": 0.0}, DeadlineExceeded)],
)
async def test_calls_that_cannot_go_are_refused_at_once(router: Router, fields: dict[str, object], kind: type[DespinaError]) -> None:
    (answer,) = submit(router, **fields)

    assert answer.ended
    await failure(answer, kind)
    assert 0 == router.bytes_in_flight


async def test_a_version_whose_terms_cannot_be_read_is_refused_with_the_reason(nodes: FakeNodes) -> None:
    def terms(ref: Ref) -> None:
        raise NotFound(f"'{ref.name}' version {ref.version} is not found")

    router = Router(nodes, terms, lambda _caller, name: Ref(name, 1))  # type: ignore[arg-type]
    (answer,) = submit(router)

    assert "'f' version 1 is not found" == await failure(answer, NotFound)
    assert [] == nodes.wants
    await router.close(0.0)


# -- deadlines and cancellation ---------------------------------------------------------------------------------------


async def test_a_call_that_waits_past_its_deadline_leaves_the_queue(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    (late,) = submit(router, timeout_s=0.03)
    (patient,) = submit(router)

    assert "in the queue, and no replica was ready in time" in await failure(late, DeadlineExceeded)

    target = await serve(router, nodes, await replica(F))
    frame = await target.next()
    target.reply(frame.id, b"done")

    assert b"done" == await patient.result()
    assert target.received.empty()


async def test_the_reply_after_the_deadline_is_dropped_and_its_credit_returns_only_with_it(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F, credit=1))
    (late,) = submit(router, timeout_s=0.03)
    frame = await target.next()

    assert "no answer within" in await failure(late, DeadlineExceeded)

    (next_,) = submit(router)

    assert {F: (1, 1)} == router.backlog()
    assert 2 == router.bytes_in_flight
    assert target.received.empty()

    target.reply(frame.id, b"too late")
    target.reply((await target.next()).id, b"in time")

    assert b"in time" == await next_.result()
    assert 0 == router.bytes_in_flight


async def test_cancelling_a_waiting_call_takes_it_out_of_the_queue_without_a_callback(router: Router) -> None:
    first, second = submit(router, 2)
    router.cancel(first.call)
    router.cancel(first.call)

    assert {F: (1, 0)} == router.backlog()
    assert not first.ended
    assert not second.ended


async def test_cancelling_a_sent_call_tells_the_replica_and_keeps_its_credit_until_it_answers(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F, credit=1))
    gone, waiting = submit(router, 2)
    frame = await target.next()
    router.cancel(gone.call)

    assert frame.id == (await target.next(Kind.CANCEL)).id
    assert {F: (1, 1)} == router.backlog()

    target.send(frames.failure(frame.id, 109, "cancelled"))
    target.reply((await target.next()).id, b"next")

    assert b"next" == await waiting.result()
    assert not gone.ended


# -- replicas that drain, die or hang ---------------------------------------------------------------------------------


async def test_a_draining_replica_gives_back_what_it_did_not_start_and_the_order_is_kept(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    old = await serve(router, nodes, await replica(F, credit=4))
    answers = submit(router, 6)
    sent = await old.calls(4)
    old.send(frames.bare(Kind.GOODBYE, 0), *(frames.bare(Kind.RETURN, frame.id) for frame in (sent[3], sent[1], sent[2])))
    await until(lambda: router.backlog() == {F: (5, 1)})

    new = await serve(router, nodes, await replica(F, credit=8))
    frames_ = await new.calls(5)

    assert [b"1", b"2", b"3", b"4", b"5"] == [frame.body for frame in frames_]

    old.reply(sent[0].id, b"last")

    assert b"last" == await answers[0].result()


async def test_a_draining_link_gets_no_more_calls_and_a_new_replica_is_asked_for(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F))
    target.send(frames.bare(Kind.GOODBYE, 0))
    await until(lambda: not router.pool(F).links)
    submit(router)

    assert (F, 1) in nodes.wants
    assert target.received.empty()


async def test_a_call_that_only_ever_comes_back_fails_in_the_end(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    for _ in range(MAX_RETURNS + 1):
        target.send(frames.bare(Kind.RETURN, (await target.next()).id))

    assert f"{MAX_RETURNS + 1} times" in await failure(answer, ReplicaDied)


async def test_of_a_dead_replica_only_the_running_batch_fails_and_the_rest_is_queued_again_in_order(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    dead = await serve(router, nodes, await replica(F, credit=4))
    answers = submit(router, 5)
    sent = await dead.calls(4)
    dead.cut()
    await until(lambda: not router.pool(F).linked)

    assert {F: (1, 4)} == router.backlog()
    assert not any(answer.ended for answer in answers)

    nodes.tell(dead.gone(sent[0].id, sent[1].id, message="f@1: killed by signal 9"))

    assert "f@1: killed by signal 9" == await failure(answers[0], ReplicaDied)
    await failure(answers[1], ReplicaDied)

    again = await serve(router, nodes, await replica(F, credit=4))

    assert [b"2", b"3", b"4"] == [frame.body for frame in await again.calls(3)]


async def test_the_word_of_the_node_may_come_before_the_end_of_the_link(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F))
    answered, running = submit(router, 2)
    sent = await target.calls(2)
    target.reply(sent[0].id, b"just in time")
    nodes.tell(target.gone(sent[1].id, wire=AuthorHung.wire, message="f@1 ran 330 s"))
    target.cut()

    assert b"just in time" == await answered.result()
    assert "f@1 ran 330 s" == await failure(running, AuthorHung)


async def test_a_socket_kept_open_by_a_child_of_the_dead_does_not_hold_its_calls(
    router: Router, nodes: FakeNodes, replica: MakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "GONE_WAIT_S", 0.02)
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    nodes.tell(target.gone((await target.next()).id))

    await failure(answer, ReplicaDied)
    await asyncio.wait_for(target.closed.wait(), 5)


async def test_calls_of_an_idempotent_version_that_a_dying_replica_had_begun_get_one_more_chance(
    nodes: FakeNodes, replica: MakeReplica
) -> None:
    router = Router(nodes, lambda _ref: Terms(idempotent=True), lambda _caller, name: Ref(name, 1))
    (answer,) = submit(router)
    for _ in range(2):
        target = await serve(router, nodes, await replica(F))
        frame = await target.next()
        nodes.tell(target.gone(frame.id))
        target.cut()
        await until(lambda: not router.pool(F).linked)

    await failure(answer, ReplicaDied)
    await router.close(0.0)


async def test_without_the_word_of_the_node_all_calls_of_a_lost_link_fail_and_it_is_dialled_again(
    router: Router, nodes: FakeNodes, replica: MakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "GONE_WAIT_S", 0.02)
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    await target.next()
    target.cut()

    assert "its node did not say why" in await failure(answer, ReplicaDied)
    await until(lambda: target.connections == 2 and bool(router.pool(F).links))


async def test_a_deadline_also_ends_calls_of_a_lost_link(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F))
    (late,) = submit(router, timeout_s=0.05)
    (gone,) = submit(router)
    await target.calls(2)
    target.cut()
    router.cancel(gone.call)
    await failure(late, DeadlineExceeded)
    nodes.tell(target.gone())

    assert {} == router.backlog()
    assert 0 == router.bytes_in_flight
    assert not gone.ended


async def test_a_replica_that_vanished_while_its_node_was_away_settles_as_unexplained(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    await target.next()
    nodes.tell(Vanished(target.event.id))

    assert not answer.ended

    target.cut()
    await until(lambda: not router.pool(F).linked)
    nodes.tell(Vanished(target.event.id))

    await failure(answer, ReplicaDied)


async def test_a_replica_that_does_not_accept_yet_is_dialled_again(
    router: Router, nodes: FakeNodes, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "DIAL_AGAIN_S", 0.001)
    slow = FakeReplica(sockets / "slow.sock", F, echo=True)
    nodes.tell(slow.event)
    (answer,) = submit(router)
    await asyncio.sleep(0)
    await slow.listen()

    assert b"0" == await answer.result()
    await slow.stop()


async def test_a_replica_with_a_token_that_is_none_is_left_alone(
    router: Router, nodes: FakeNodes, replica: MakeReplica, caplog: pytest.LogCaptureFixture
) -> None:
    target = await replica(F)
    nodes.tell(replace(target.event, token="no hex"))
    await until(lambda: "replica_unusable" in caplog.text)

    assert 0 == target.connections == router.pool(F).replicas


async def test_closing_while_a_link_is_dialled_ends(nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await replica(F)
    for turns in range(6):
        router = Router(nodes, lambda _ref: Terms(), lambda _caller, name: Ref(name, 1))
        nodes.tell(target.event)
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(router.close(0.0), 5)


# -- nothing a replica sends is trusted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(frames.reply(99, 0), id="reply to an unknown id"),
        pytest.param(frames.failure(99, 310, "x"), id="failure of an unknown id"),
        pytest.param(frames.bare(Kind.RETURN, 99), id="return of an unknown id"),
        pytest.param(frames.prefix(Kind.REPLY, 0, 2, 1) + b"ab", id="reply shorter than its head"),
        pytest.param(frames.prefix(Kind.REPLY, 0, 8, 1) + struct.pack("<I", 900) + b"abcd", id="header longer than its body"),
        pytest.param(frames.reply(1, 0, flags=0x8000), id="unknown flag"),
        pytest.param(frames.failure(1, 4711, "x"), id="unknown error number"),
        pytest.param(frames.prefix(Kind.FAILURE, 0, 1, 1) + b"a", id="failure shorter than its head"),
        pytest.param(frames.prefix(Kind.FAILURE, 0, 70_002, 1) + struct.pack("<H", 310) + b"a" * 70_000, id="endless message"),
        pytest.param(frames.prefix(Kind.RETURN, 0, 1, 1) + b"a", id="return with a payload"),
        pytest.param(frames.prefix(Kind.GOODBYE, 0, 1, 0) + b"a", id="goodbye with a payload"),
        pytest.param(frames.prefix(Kind.CALL, 0, 0, 1), id="a frame that only routers send"),
        pytest.param(frames.ready(1 << 24, 1, 1), id="boundless credit"),
        pytest.param(frames.ready(4, 1, 2), id="another link number"),
        pytest.param(frames.prefix(Kind.READY, 0, 3, 0) + b"abc", id="short ready"),
        pytest.param(frames.prefix(77, 0, 0, 1), id="unknown kind"),
        pytest.param(b"\x09" + frames.reply(1, 0)[1:], id="another version"),
        pytest.param(frames.prefix(Kind.REPLY, 0, 0xFFFF_FFFF, 1), id="length over the limit"),
        pytest.param(frames.prefix(Kind.OUTCALL, 0, 3, 1) + b"abc", id="outcall shorter than its head"),
        pytest.param(frames.outcall(1, "g", 2, 0, header_length=7) + b"ab", id="outcall header longer than its body"),
    ],
)
async def test_a_replica_that_breaks_the_format_loses_its_link(
    router: Router,
    nodes: FakeNodes,
    replica: MakeReplica,
    bad: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(lines, "GONE_WAIT_S", 0.02)
    monkeypatch.setattr(lines, "DIAL_AGAIN_S", 60.0)
    target = await serve(router, nodes, await replica(F))
    (answer,) = submit(router)
    await target.next()
    target.send(bad, frames.reply(1, 0))

    assert "it broke the frame format" in await failure(answer, ReplicaDied)
    await asyncio.wait_for(target.closed.wait(), 5)
    assert "it broke the frame format" in caplog.text
    assert {} == router.backlog()


async def test_nothing_but_ready_or_goodbye_may_come_first(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await replica(F, credit=-1)
    nodes.tell(target.event)
    await until(lambda: target.hello is not None)
    target.send(frames.outcall(1, "g", 0, 0))
    await asyncio.wait_for(target.closed.wait(), 5)

    assert [] == router.pool(F).linked


# -- versions and leases ----------------------------------------------------------------------------------------------


async def test_a_version_that_cannot_start_fails_its_calls_at_once_and_new_ones_until_it_may_be_tried_again(
    router: Router, nodes: FakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(router, "_time", lambda: now)
    waiting = submit(router, 2)
    nodes.tell(VersionEvent("f", 1, failed=True, wire=302, message="f@1: model.py:3: boom", retry_after_s=2.0))
    now += 1.5
    new = submit(router)

    for answer in [*waiting, *new]:
        assert "f@1: model.py:3: boom" == await failure(answer, StartFailed)
    refusal = await new[0].result()

    assert isinstance(refusal, StartFailed)
    assert 0.5 == pytest.approx(refusal.retry_after_s)

    nodes.wants.clear()
    now += 1.0
    (retried,) = submit(router)

    assert not retried.ended
    assert [(F, 1)] == nodes.wants


async def test_a_version_that_was_reset_is_tried_at_once(router: Router, nodes: FakeNodes) -> None:
    nodes.tell(VersionEvent("f", 1, failed=True, message="boom", retry_after_s=60.0))
    nodes.tell(VersionEvent("f", 1, failed=False))
    (answer,) = submit(router)

    assert not answer.ended
    assert [(F, 1)] == nodes.wants


async def test_a_version_with_a_replica_goes_on_serving_when_no_further_one_starts(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    await serve(router, nodes, await replica(F, echo=True))
    nodes.tell(VersionEvent("f", 1, failed=True, message="boom", retry_after_s=60.0))
    (answer,) = submit(router)

    assert b"0" == await answer.result()


async def test_a_refused_lease_fails_what_waits_unless_capacity_may_come(router: Router, nodes: FakeNodes) -> None:
    (patient,) = submit(router, timeout_s=0.1)
    nodes.tell(Refused(F, NoCapacity("2 cores are all taken")))

    assert "2 cores are all taken" in await failure(patient, DeadlineExceeded)

    (answer,) = submit(router)
    nodes.tell(Refused(F, NotFound("no record of f@1")))

    assert "no record of f@1" == await failure(answer, NotFound)


async def test_leases_are_renewed_while_calls_wait_and_for_the_idle_time_after_then_given_up(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    (answer,) = submit(router)
    await until(lambda: len(nodes.wants) >= 3)
    await serve(router, nodes, await replica(F, echo=True))
    await answer.result()
    await until(lambda: nodes.wants[-1] == (F, 0))

    assert {(F, 1)} == set(nodes.wants[:-1])
    assert 1 == nodes.wants.count((F, 0))


async def test_calls_without_a_replica_fail_when_no_node_answers_for_a_while(
    router: Router, nodes: FakeNodes, replica: MakeReplica
) -> None:
    await serve(router, nodes, await replica(G, echo=True))
    nodes.connected = 0
    (waiting,) = submit(router)
    (served,) = submit(router, ref=G)

    assert "no node has answered for 0.2 s" in await failure(waiting, NodeUnreachable)
    assert b"0" == await served.result()


async def test_pools_that_nobody_needs_are_let_go(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F, echo=True))
    (answer,) = submit(router)
    await answer.result()
    nodes.tell(replace(target.event, state=State.STOPPED))
    target.cut()
    await until(lambda: F not in router._pools)


async def test_observations_tell_load_and_calls_since_the_last_time(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    target = await serve(router, nodes, await replica(F, credit=1))
    answers = submit(router, 3)
    frame = await target.next()
    router.observations()
    await until(lambda: router.pool(F).samples >= 2)
    seen = router.observations()[F]

    assert (3.0, 2, 1, 3, 0.0) == (seen.load, seen.queued, seen.running, seen.calls, seen.idle_s)

    for _ in range(2):
        target.reply(frame.id)
        frame = await target.next()
    target.reply(frame.id)
    await answers[2].result()
    await until(lambda: router.pool(F).samples >= 5)
    seen = router.observations()[F]

    assert (0, 0, 3) == (seen.queued, seen.running, seen.calls)
    assert seen.load < 3.0


async def test_the_page_shows_how_many_calls_wait(nodes: FakeNodes, tmp_path: Path) -> None:
    page.create(str(tmp_path / "page"))
    router = Router(nodes, lambda _ref: Terms(), lambda _caller, name: Ref(name, 1), page.Page(str(tmp_path / "page")))
    answers = submit(router, 2)
    reader = page.PageReader(str(tmp_path / "page"))

    assert [("nv_inference_pending_request_count", "gauge", {"model": "f", "version": "1"}, 2.0)] == [tuple(s) for s in reader.samples()]

    router.cancel(answers[0].call)

    assert [1.0] == [sample.value for sample in reader.samples()]
    reader.close()
    await router.close(0.0)


# -- calls that replicas make -----------------------------------------------------------------------------------------


async def test_a_replica_calls_another_function_one_hop_deeper(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    caller = await serve(router, nodes, await replica(F))
    callee = await serve(router, nodes, await replica(G))
    caller.send(frames.outcall(5, "g@2", 4, 2_000_000, header_length=2, hops=3, context=b"{}"), b"body")
    frame = await callee.next()

    assert (2, 4, b"body") == (frame.head.header_length, frame.head.hops, frame.body)
    assert 1_000_000 < frame.head.remaining_us <= 2_000_000

    callee.send(frames.reply(frame.id, 6, 3, 16), b"answer")
    result = await caller.next(Kind.RESULT)

    assert (5, (3, b"answer")) == (result.id, frames.read_reply(memoryview(result.payload)))


@pytest.mark.parametrize(
    ("name", "hops", "wire", "text"),
    [
        ("missing", 0, NotFound.wire, "Request for unknown model: 'missing' is not found"),
        ("g@zero", 0, InvalidRequest.wire, "is not a version"),
        ("g@2", 8, InvalidRequest.wire, "9 calls deep; the limit is 8"),
    ],
)
async def test_an_outcall_that_cannot_be_made_is_answered_with_the_reason(
    router: Router, nodes: FakeNodes, replica: MakeReplica, name: str, hops: int, wire: int, text: str
) -> None:
    caller = await serve(router, nodes, await replica(F))
    caller.send(frames.outcall(5, name, 0, 0, hops=hops))
    answer = await caller.next(Kind.FAILURE)
    number, message = frames.read_failure(memoryview(answer.payload))

    assert (5, wire) == (answer.id, number)
    assert text in message


async def test_the_outcalls_of_a_dead_replica_are_cancelled(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    caller = await serve(router, nodes, await replica(F))
    callee = await serve(router, nodes, await replica(G))
    caller.send(frames.outcall(5, "g@2", 0, 0))
    frame = await callee.next()
    caller.cut()

    assert frame.id == (await callee.next(Kind.CANCEL)).id


async def test_an_outcall_id_in_use_breaks_the_format(router: Router, nodes: FakeNodes, replica: MakeReplica) -> None:
    caller = await serve(router, nodes, await replica(F))
    caller.send(frames.outcall(5, "g@2", 0, 0), frames.outcall(5, "g@2", 0, 0))
    await asyncio.wait_for(caller.closed.wait(), 5)


# -- the end ----------------------------------------------------------------------------------------------------------


async def test_closing_lets_present_calls_end_and_refuses_new_ones(nodes: FakeNodes, replica: MakeReplica) -> None:
    router = Router(nodes, lambda _ref: Terms(), lambda _caller, name: Ref(name, 1))
    target = await serve(router, nodes, await replica(F))
    (present,) = submit(router)
    closing = asyncio.create_task(router.close(5.0))
    frame = await target.next()
    await asyncio.sleep(0)
    (refused,) = submit(router)

    await failure(refused, Draining)

    target.reply(frame.id, b"last")

    assert b"last" == await present.result()
    await closing
    await asyncio.wait_for(target.closed.wait(), 5)


async def test_closing_without_grace_fails_what_is_left(nodes: FakeNodes, replica: MakeReplica) -> None:
    router = Router(nodes, lambda _ref: Terms(), lambda _caller, name: Ref(name, 1))
    target = await serve(router, nodes, await replica(F, credit=1))
    answers = submit(router, 2)
    await target.next()
    await router.close(0.0)

    for answer in answers:
        await failure(answer, Draining)
    assert 0 == router.bytes_in_flight
