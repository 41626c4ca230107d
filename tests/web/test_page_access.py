"""Who may use the page: links, sessions, keys, tickets, principals."""

from __future__ import annotations

import time

from exec_server.web.page_access import SESSION_SECONDS, TICKET_SECONDS, PageAccess
from tests.requirements import requirement
from tests.support.principals import MadePrincipals


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


@requirement("web/access:one-time-link")
def test_a_link_lets_one_browser_in_once():
    access = PageAccess(clock=Clock())
    link = access.new_link()
    assert access.sign_in("something else") is None
    session = access.sign_in(link)
    assert session is not None and access.session_of(session.cookie) is session
    assert access.sign_in(link) is None
    assert link not in repr(session) and session.cookie not in repr(session)


@requirement("web/access:two-halves")
def test_a_session_needs_its_key_besides_the_cookie():
    access = PageAccess(clock=Clock())
    one, two = (access.sign_in(access.new_link()) for _ in range(2))
    assert one is not None and two is not None
    assert access.has_key(one, one.key)
    for wrong in (two.key, "", None, 7):
        assert not access.has_key(one, wrong)
    assert access.session_of(None) is None and access.session_of("unknown") is None


def test_a_session_ends_by_itself_and_when_it_is_told():
    clock = Clock()
    access = PageAccess(clock=clock)
    one, two = (access.sign_in(access.new_link()) for _ in range(2))
    assert one is not None and two is not None
    access.sign_out(one)
    assert access.session_of(one.cookie) is None and not access.is_signed_in(one)
    clock.now += SESSION_SECONDS + 1
    assert access.session_of(two.cookie) is None


def test_a_ticket_is_for_one_session_and_one_time():
    clock = Clock()
    access = PageAccess(clock=clock)
    one, two = (access.sign_in(access.new_link()) for _ in range(2))
    assert one is not None and two is not None
    ticket = access.new_ticket(one, "subject")
    assert access.subject_of(one, ticket) == "subject"
    assert access.subject_of(two, ticket) is None and access.subject_of(one, "other") is None
    clock.now += TICKET_SECONDS + 1
    assert access.subject_of(one, ticket) is None


def test_memory_is_bounded():
    access = PageAccess(clock=Clock())
    first = access.new_link()
    for _ in range(100):
        access.new_link()
    assert access.sign_in(first) is None
    sessions = [access.sign_in(access.new_link()) for _ in range(100)]
    assert sum(access.session_of(each.cookie) is not None for each in sessions if each) < 100


@requirement("web/access:principals")
def test_only_an_admin_among_the_principals_is_let_in(tmp_path):
    made = MadePrincipals(tmp_path)
    admin, other = made.add("ann"), made.add("bob", may="exec,files:read")
    access = PageAccess(clock=time.time, principals=made.file)
    assert access.wants_token
    assert access.sign_in(other) is None and access.sign_in("wrong") is None
    session = access.sign_in(admin)
    assert session is not None and session.principal == "ann"
    made.file.remove("ann")
    assert not access.is_good(session) and access.session_of(session.cookie) is None
