import threading
import time

from workers.process.lead import Lead


def test_one_leads_at_a_time() -> None:
    lead = Lead()

    assert lead.take()
    assert not lead.try_take()
    assert not lead.take(0.001)
    lead.give()
    assert lead.try_take()


def test_a_waiter_whose_wish_came_true_is_let_go_even_if_the_lead_is_taken_again() -> None:
    lead = Lead()
    lead.take()
    answered = threading.Event()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(lead.take(10, answered.is_set)))
    waiter.start()
    deadline = time.monotonic() + 10
    while waiter.is_alive() and time.monotonic() < deadline:
        answered.set()
        lead.give()
        lead.take()
    waiter.join()

    assert [False] == answers


def test_those_who_wait_all_lead_in_the_end() -> None:
    lead = Lead()
    count = 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            assert lead.take()
            seen = count
            time.sleep(0)
            count = seen + 1
            lead.give()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 800 == count
