"""`GET /-/discover` on the admin listener of a program of several processes."""

import json


def test_discover_in_what_was_asked_for(start_with, ask, origin):
    running = start_with(
        'workers = 2\naccess_log = "off"\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "rfc3986"\nupstream = "{origin.url}"\n'
    )
    for number in range(12):
        for target in (f"/p{number}/", f"/p{number}/", f"/p{number}/index.html"):
            assert ask(running.proxy, target, "en.example").status == 200
    answer = ask(running.admin, "/-/discover", "127.0.0.1")
    assert (answer.status, answer.value("content-type")) == (200, "application/json")
    told = json.loads(answer.body)
    assert (told["urls"], told["requests"]) == (24, 36)
    assert told["path"]["index_names"] == ["index.html"]
    assert told["folded"]["urls"] == 12
