"""A name server on loopback, which answers from a table that a test changes."""

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
from dns.resolver import Resolver

from support import serving


class NameServer(socketserver.ThreadingUDPServer):
    """`records` has the values by name and type; without any the name does not exist, `fails` is SERVFAIL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Question)
        self.records: dict[tuple[str, str], list[str]] = {}
        self.ttl, self.fails = 60, False
        self.asked: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def resolver(self) -> Resolver:
        """A resolver that asks here alone."""
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], self.port
        resolver.lifetime = resolver.timeout = 2.0
        return resolver


class _Question(socketserver.BaseRequestHandler):
    server: NameServer

    def handle(self) -> None:
        octets, sock = self.request
        question = dns.message.from_wire(octets)
        asked, server = question.question[0], self.server
        name, kind = asked.name.to_text(omit_final_dot=True), asked.rdtype.name
        server.asked.append(f"{name} {kind}")
        answer = dns.message.make_response(question)
        values = server.records.get((name, kind), [])
        if server.fails:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif not any(name == known for known, _ in server.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif values:
            answer.answer.append(dns.rrset.from_text_list(asked.name, server.ttl, "IN", kind, values))
        answer.flags |= dns.flags.RA
        sock.sendto(answer.to_wire(), self.client_address)


@contextmanager
def name_server() -> Iterator[NameServer]:
    """A name server until the block ends."""
    with NameServer() as server, serving(server):
        yield server
