"""The process that a test's replica is: ``python -m tests.workers.process.child SPEC LISTENER_FD STATUS_FD``."""

import json
import socket
import sys

from workers.process.main import run
from workers.process.spec import ReplicaSpec

if __name__ == "__main__":
    run(ReplicaSpec.from_json(json.loads(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]))
