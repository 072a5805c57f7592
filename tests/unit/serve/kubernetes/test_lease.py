"""Who leads: at most one at a time, whatever clocks and requests do."""

from collections.abc import Iterator

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.kubernetes.lease import Lease, LeaseSigns
from gpuyard.serve.kubernetes.quantities import moment
from support.kubernetes_api import LEASES, FakeApi
from support.kubernetes_cluster import client


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    yield made
    made.close()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_lease_is_one_holders_until_it_runs_out(api: FakeApi) -> None:
    clock = Clock()
    server = client(api)
    one, other = (Lease(server, "gpuyard", "gpuyard", 15, name, clock) for name in ("one", "other"))
    assert one.renew()
    assert not other.renew()
    clock.now_s = 14.0
    assert one.held
    assert one.renew()
    assert not other.renew()
    clock.now_s = 28.9  # nothing was heard of one for just under 15 s
    assert not other.renew()
    clock.now_s = 29.1
    assert not one.held
    assert other.renew()
    assert not one.renew()
    server.close()


def test_of_two_that_write_at_once_one_loses(api: FakeApi) -> None:
    server = client(api)
    one, other = (Lease(server, "gpuyard", "gpuyard", 15, name) for name in ("one", "other"))
    assert one.renew()
    one.release()
    real = server.replace

    def late(path: str, body: dict[str, object]) -> dict[str, object]:
        server.replace = real  # type: ignore[method-assign]
        assert other.renew()
        return real(path, body)

    server.replace = late  # type: ignore[assignment]
    assert not one.renew()
    assert other.held
    assert not one.held
    server.close()


def test_signs_of_life_are_the_time_since_the_last_renewal(api: FakeApi) -> None:
    server = client(api)
    signs = LeaseSigns(server, "gpuyard", "gpuyard")
    assert signs.silence_s() is None
    lease = Lease(server, "gpuyard", "gpuyard", 15, "one")
    lease.renew()
    renewed_s = moment(api.all(LEASES)[0]["spec"]["renewTime"])
    assert renewed_s is not None
    assert signs.silence_s(renewed_s + 40.0) == pytest.approx(40.0)
    assert not signs.halted
    lease.release()
    assert signs.silence_s() is None
    api.fault = lambda method, path: "500"
    with pytest.raises(AdapterError):
        signs.silence_s()
    server.close()
