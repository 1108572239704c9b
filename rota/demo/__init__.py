"""The demo: an app with a few kinds of jobs, someone who feeds them, pods, and a live view.

`rota.demo:app` is the app, for `rota worker`. `rota demo` runs the rest: `feeder` draws jobs,
`crew` keeps pods as child processes, `picture` puts together what they report and what the
database says, `display` draws it, and `stage` runs all of them until it is time to stop.
"""

from rota.demo.jobs import app

__all__ = ["app"]
