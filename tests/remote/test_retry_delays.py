"""Pauses, as numbers."""

from __future__ import annotations

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.remote.retry_delays import Recovery, Redial, registry_pause
from tests.requirements import requirement


@requirement("remote/delays:registry")
@pytest.mark.parametrize(("draw", "factor"), [(0.0, 1.0), (1.0, 1.5)])
def test_registry_pauses_double_and_stay(draw, factor):
    pauses = [registry_pause(n, random=lambda: draw) for n in (0, 1, 2, 3, 4, 50, 10_000)]
    assert pauses == [base * factor for base in (0.5, 1, 2, 4, 5, 5, 5)]


@requirement("remote/delays:rendezvous")
@pytest.mark.parametrize(("draw", "factor"), [(0.0, 0.5), (1.0, 1.0)])
def test_rendezvous_pauses_double_up_to_half_a_minute(draw, factor):
    redial = Redial(random=lambda: draw)
    pauses = [redial.next_pause() for _ in range(7)]
    assert pauses == [base * factor for base in (1, 2, 4, 8, 16, 30, 30)]


@requirement("remote/delays:sessions")
def test_those_who_are_looked_for_do_not_wait_that_long():
    redial = Redial(random=lambda: 1.0)
    pauses = [redial.next_pause(hurry=True) for _ in range(7)]
    assert pauses == [1, 2, 4, 5, 5, 5, 5]
    assert sum(pauses[:4]) < DEFAULT_LIMITS.recovery_window / 2
    assert redial.next_pause() == 30


@requirement("remote/delays:rendezvous")
def test_only_a_lasting_socket_begins_the_pauses_anew():
    redial = Redial(random=lambda: 1.0)
    redial.next_pause()
    redial.lived(119.9)
    assert redial.next_pause() == 2
    redial.lived(120.0)
    assert redial.next_pause() == 1


@requirement("remote/delays:offline")
def test_an_executor_that_is_restarted_again_and_again_is_asked_for_soon():
    recovery = Recovery(random=lambda: 1.0)
    assert recovery.next_pause(lived=60) == 0
    # A connection that ends at once is not replaced at once.
    assert recovery.next_pause(lived=0.1) == 0.75
    pauses = []
    for _ in range(25):
        recovery.failed(is_offline=True)
        pauses.append(recovery.next_pause(lived=60))
    assert pauses == [0.75] * 20 + [1.5] * 5
    recovery.succeeded()
    assert recovery.next_pause(lived=60) == 0


@requirement("remote/delays:offline")
def test_a_registry_that_fails_is_asked_less_and_less_often():
    recovery = Recovery(random=lambda: 0.0)
    recovery.failed(is_offline=True)
    pauses = []
    for _ in range(4):
        recovery.failed(is_offline=False)
        pauses.append(recovery.next_pause(lived=60))
    assert pauses == [2, 2, 2, 2]
    recovery.failed(is_offline=True)
    assert recovery.next_pause(lived=60) == 0.5


@requirement("remote/limits:shipped")
def test_the_shipped_numbers_are_those_of_the_reference():
    limits = DEFAULT_LIMITS
    assert (limits.registry_timeout, limits.connect_timeout) == (10, 10)
    assert (limits.ping_interval, limits.pong_timeout, limits.relay_write_timeout) == (30, 60, 60)
    assert limits.relay_frame_bytes == 262144
    assert (limits.bundle_timeout, limits.bundle_window, limits.bundle_retries) == (6, 14, 4)
    assert (limits.forward_timeout, limits.forward_frame_bytes) == (10, 8388608)
    assert limits.recovery_window == 25
