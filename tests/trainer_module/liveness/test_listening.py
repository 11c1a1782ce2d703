import socket
import threading
import time

from tfx_distribute.trainer_module.liveness import listening


def test_waits_for_one_that_comes_later():
    with socket.create_server(("127.0.0.1", 0)) as first, socket.socket() as second:
        second.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (first, second)]
        assert [listening.listens(address) for address in addresses] == [True, False]
        timer = threading.Timer(0.3, second.listen)
        started = time.monotonic()
        timer.start()
        assert listening.wait_for(addresses, seconds=60)
        assert time.monotonic() - started >= 0.2
        timer.join()


def test_does_not_wait_for_ever():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert not listening.wait_for([f"127.0.0.1:{silent.getsockname()[1]}"], seconds=0.1)


def test_a_name_that_is_not_known_yet():
    assert not listening.listens("worker-0.invalid:2222")
