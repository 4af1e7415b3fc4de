"""Authentication of a connection: which fields are about it, and whose its connections are."""

from examples import cases
from univocal.http.bonds import Bond, authenticates_connection, challenges_connection


@cases(
    "value, told",
    *((each, True) for each in (b"NTLM", b"ntlm TlRMTVNTUAAB", b"Negotiate")),
    *((each, True) for each in (b'Basic realm="a", Negotiate', b"Negotiate,NTLM", b"Kerberos")),
    *((each, False) for each in (b"Basic TlRM", b"Bearer NTLM", b"NTLMx", b"")),
)
def test_schemes_that_are_about_the_connection(value, told):
    assert authenticates_connection(value) is told
    assert challenges_connection([(b"vary", b"NTLM"), (b"www-authenticate", value)]) is told


class Line:
    closed = False

    def close(self):
        self.closed = True


def test_a_bond_ends_with_its_connections():
    bond, one, other, last = Bond(), Line(), Line(), Line()
    bond.keep("a", one)
    bond.keep("a", one)
    bond.keep("b", other)
    bond.keep("b", last)
    assert (one.closed, other.closed) == (False, True)
    bond.forget("b", other)
    assert bond.take("b") is last
    assert (bond.take("b"), bond.holds) == (None, True)
    bond.keep("b", last)
    bond.forget("b", last)
    assert (bond.take("b"), bond.holds) == (None, True)
    bond.end()
    assert (one.closed, bond.holds, bond.is_over) == (True, False, True)
