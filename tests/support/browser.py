"""browser.py - Opens a page in headless Chromium, over the DevTools protocol on a pipe.

    browser.py PAGE [--width 1200] [--height 900] [--dark] [--print] [--shot FILE.png] [--full]
               [--script JS]...

prints JSON: "console" (errors, warnings and exceptions), "requests" (all but the page itself and
data:), "width" (scrollWidth of the document), "inner" (innerWidth) and "values": the value of each
script, an expression; a script "key:NAME" presses the key NAME instead.  Needs no package.
"""
import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # s per command


class Browser:
    def __init__(self, folder):
        self.number, self.events = 0, []
        down, up = os.pipe(), os.pipe()
        self.read, self.write, self.rest = up[0], down[1], b""

        def ends():  # the browser reads from 3 and writes to 4
            a, b = os.dup(down[0]), os.dup(up[1])
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(
            [shutil.which("chromium") or "chromium", "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe",
             "--user-data-dir=" + os.path.join(folder, "profile"), "about:blank"],
            preexec_fn=ends, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, env=dict(os.environ, HOME=folder))
        os.close(down[0])
        os.close(up[1])

    def message(self, until):
        """The next message, or None after the deadline."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            got = os.read(self.read, 1 << 20)
            if not got:
                raise SystemExit("browser.py: chromium has left")
            self.rest += got
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, session=None, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        until = time.monotonic() + LIMIT
        while True:
            answer = self.message(until)
            if answer is None:
                raise SystemExit(f"browser.py: no answer to {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"browser.py: {method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, event):
        until = time.monotonic() + LIMIT
        while not any(e.get("method") == event for e in self.events):
            answer = self.message(until)
            if answer is None:
                raise SystemExit(f"browser.py: no {event}")
            self.events.append(answer)

    def close(self):
        try:
            self.call("Browser.close")
        except SystemExit:
            self.process.kill()
        self.process.wait()
        self.log.close()


def complaints(events):
    out = []
    for e in events:
        p, method = e.get("params", {}), e.get("method")
        if method == "Runtime.exceptionThrown":
            out.append(p["exceptionDetails"].get("text", "exception"))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            out.append(" ".join(str(a.get("value")) for a in p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            out.append(p["entry"]["text"])
    return out


def press(b, session, name):
    code = {"Enter": 13, "Tab": 9, " ": 32}[name]
    text = {"Enter": "\r", " ": " "}.get(name, "")
    b.call("Input.dispatchKeyEvent", session, type="keyDown", key=name, text=text,
           windowsVirtualKeyCode=code)
    b.call("Input.dispatchKeyEvent", session, type="keyUp", key=name, windowsVirtualKeyCode=code)


def evaluate(b, session, script):
    if script.startswith("key:"):
        return press(b, session, script[4:])
    got = b.call("Runtime.evaluate", session, expression=script, returnByValue=True)
    if "exceptionDetails" in got:
        raise SystemExit(f"browser.py: {script}: {got['exceptionDetails']['text']}")
    return got["result"].get("value")


def visit(b, args):
    target = b.call("Target.createTarget", url="about:blank")["targetId"]
    session = b.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        b.call(domain + ".enable", session)
    b.call("Emulation.setDeviceMetricsOverride", session, width=args.width, height=args.height,
           deviceScaleFactor=args.scale, mobile=args.width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if args.dark else "light"}
    b.call("Emulation.setEmulatedMedia", session, media="print" if args.print else "",
           features=[scheme])
    url = "file://" + os.path.abspath(args.page)
    b.call("Page.navigate", session, url=url)
    b.wait("Page.loadEventFired")
    values = [evaluate(b, session, script) for script in args.script]
    width = evaluate(b, session, "document.documentElement.scrollWidth")
    inner = evaluate(b, session, "window.innerWidth")
    if args.shot:
        shot = b.call("Page.captureScreenshot", session, format="png",
                      captureBeyondViewport=args.full,
                      **({"clip": clip(b, session, args)} if args.full else {}))
        with open(args.shot, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
    requests = [e["params"]["request"]["url"] for e in b.events
                if e.get("method") == "Network.requestWillBeSent"]
    return {"console": complaints(b.events), "width": width, "inner": inner, "values": values,
            "requests": [r for r in requests if r != url and not r.startswith("data:")]}


def clip(b, session, args):
    height = evaluate(b, session, "document.documentElement.scrollHeight")
    return {"x": 0, "y": args.top, "width": args.width,
            "height": min(height - args.top, args.most), "scale": 1}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--shot")
    parser.add_argument("--full", action="store_true", help="all of the page, not the window")
    parser.add_argument("--top", type=int, default=0, help="with --full: from here")
    parser.add_argument("--most", type=int, default=8000, help="with --full: at most so high")
    parser.add_argument("--script", action="append", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        b = Browser(folder)
        try:
            out = visit(b, args)
        finally:
            b.close()
    json.dump(out, sys.stdout, indent=1)
    print()


main()
