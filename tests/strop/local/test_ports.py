import socket

import pytest

from strop.local.ports import PortTaken, claim_port, is_free


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_the_free_one_to_use(listener: int):
    with pytest.raises(PortTaken) as refused:
        claim_port("127.0.0.1", listener)
    words = str(refused.value).split()
    free = int(words[-1])
    assert str(refused.value) == f"port {listener} on 127.0.0.1 is taken; {free} is free: strop up --port {free}"
    assert free != listener and is_free("127.0.0.1", free)


def test_zero_takes_any_free_port():
    assert is_free("127.0.0.1", claim_port("127.0.0.1", 0))
