"""A response tells its client to stay with the origin server that answered, by a cookie."""

from __future__ import annotations

from typing import Final

from univocal.http.affinity import affinity_cookie
from univocal.http.messages import Response, values
from univocal.judge.admission import Admission

__all__ = ["staying"]

_SHARED: Final = (b"public", b"s-maxage")


def staying(response: Response, admission: Admission) -> Response:
    """The response to a client whose request it answers alone, with the cookie if that is news to it.

    The caller leaves out responses that are stored. One that says that others may store it gets no cookie,
    either: a cache in front of us would send all of its clients to one origin server.
    """
    canonical, tag = admission.canonical, response.origin_tag
    if not tag or tag == admission.origin_tag or canonical is None:
        return response
    name = admission.runtime.sticky.get(canonical.route.upstream)
    directives = b",".join(values(response.fields, b"cache-control")).lower()
    if name is None or any(directive in directives for directive in _SHARED):
        return response
    cookie = affinity_cookie(name, tag, is_secure=canonical.scheme == b"https")
    return Response(response.status, [*response.fields, cookie], server=response.server)
