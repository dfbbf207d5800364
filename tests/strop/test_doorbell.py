import threading

from jobs.tasks import run


def test_a_view_in_any_thread_rings_at_our_own_broker():
    found = []
    thread = threading.Thread(target=lambda: found.append(run.app.main))
    thread.start()
    thread.join()
    assert found == ["strop"]
