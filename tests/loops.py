"""The part of an event loop that a connection uses, with a time of its own."""

import asyncio


class Timer:
    def __init__(self, due, callback, arguments):
        self.due, self.callback, self.arguments, self.cancelled = due, callback, arguments, False

    def cancel(self):
        self.cancelled = True

    def when(self):
        return self.due


class Clock:
    def __init__(self, now=0.0):
        self.now = now
        self.timers = []
        self.ticked, self.a_tick = 0.0, 0.0

    def tick(self):
        """The time that work takes: each look at it is a tick later."""
        self.ticked += self.a_tick
        return self.ticked

    def time(self):
        return self.now

    def call_at(self, due, callback, *arguments):
        timer = Timer(due, callback, arguments)
        self.timers.append(timer)
        return timer

    def call_later(self, seconds, callback, *arguments):
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_soon(self, callback, *arguments):
        return asyncio.get_running_loop().call_soon(callback, *arguments)

    def pending(self):
        return [timer for timer in self.timers if not timer.cancelled]

    def pass_time(self, seconds):
        end = self.now + seconds
        while due := [timer for timer in self.pending() if timer.due <= end]:
            timer = min(due, key=Timer.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.due)
            timer.callback(*timer.arguments)
        self.now = end
