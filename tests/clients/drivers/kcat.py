"""kcat, a command; what it has no command for (topics made and deleted) it asks of the other librdkafka client."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time

import confluent

WAIT = 30.0


class Client:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._other = confluent.Client(bootstrap)
        self._member: Member | None = None

    def enter(self, topic: str, group: str) -> None:
        self._member = Member(self._bootstrap, topic, group)

    def received(self) -> list[str]:
        assert self._member is not None
        return list(self._member.values)

    def assigned(self) -> list[int]:
        assert self._member is not None
        return list(self._member.partitions)

    def leave(self) -> None:
        assert self._member is not None
        self._member.leave()

    def _kcat(self, *argv: str, text: str | None = None) -> str:
        command = ["kcat", "-b", self._bootstrap, *argv]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=WAIT)
        assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}"
        return ended.stdout

    def _metadata(self) -> dict[str, list[dict[str, object]]]:
        return json.loads(self._kcat("-L", "-J"))

    def brokers(self) -> list[int]:
        return sorted(int(broker["id"]) for broker in self._metadata()["brokers"])

    def topics(self) -> list[str]:
        return sorted(str(topic["topic"]) for topic in self._metadata()["topics"])

    def leader(self, topic: str, partition: int) -> int:
        found = next(entry for entry in self._metadata()["topics"] if entry["topic"] == topic)
        return next(part["leader"] for part in found["partitions"] if part["partition"] == partition)

    def create(self, topic: str, partitions: int, replication: int, config: dict[str, str]) -> None:
        self._other.create(topic, partitions, replication, config)

    def delete(self, topic: str) -> None:
        self._other.delete(topic)

    def produce(self, topic: str, partition: int, values: list[str], codec: str) -> list[int]:
        """It tells no offsets: those of the end before it began, and on."""
        first = self.ends(topic, partition)[1]
        self._kcat("-P", "-t", topic, "-p", str(partition), "-z", codec, "-X", "acks=-1", text="\n".join(values))
        return list(range(first, first + len(values)))

    def produce_for(self, topic: str, partition: int, seconds: float) -> list[str]:
        """All that it does not report as failed was acknowledged."""
        command = ["kcat", "-b", self._bootstrap, "-P", "-t", topic, "-p", str(partition), "-X", "acks=-1"]
        command += ["-X", "message.timeout.ms=30000"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdin is not None
        end, sent = time.monotonic() + seconds, []
        while time.monotonic() < end:
            sent.append(str(len(sent)))
            process.stdin.write(sent[-1] + "\n")
            process.stdin.flush()
            time.sleep(0.005)
        _, said = process.communicate(timeout=60)
        assert "Delivery failed" not in said, said
        assert process.returncode == 0, said
        return sent

    def read(self, topic: str, partition: int, start: int | str, count: int) -> list[tuple[int, str]]:
        offset = f"-{count}" if start == "end" else str(start)
        said = self._kcat(
            *("-C", "-t", topic, "-p", str(partition), "-o", offset, "-c", str(count), "-e", "-q", "-f", r"%o %s\n")
        )
        return [(int(word), value) for word, _, value in (line.partition(" ") for line in said.splitlines())]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        return self._asked(topic, partition, -2), self._asked(topic, partition, -1)

    def offset_at(self, topic: str, partition: int, milliseconds: int) -> int:
        return self._asked(topic, partition, milliseconds)

    def _asked(self, topic: str, partition: int, milliseconds: int) -> int:
        return int(self._kcat("-Q", "-t", f"{topic}:{partition}:{milliseconds}").split()[-1])


class Member:
    """``kcat -G``: it prints what it reads, and tells of its assignments where errors go. It commits by itself."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.values: list[str] = []
        self.partitions: list[int] = []
        command = ["kcat", "-b", bootstrap, "-G", group, topic, "-u", "-f", r"%s\n", "-X", "session.timeout.ms=6000"]
        command += ["-X", "heartbeat.interval.ms=1000", "-X", "auto.offset.reset=earliest"]
        command += ["-X", "auto.commit.interval.ms=200"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._hear)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.values.append(line.rstrip("\n"))

    def _hear(self) -> None:
        """``% Group g rebalanced (memberid x): assigned: t [0], t [1]``"""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            _, assigned, partitions = line.partition("assigned: ")
            if assigned and "revoked" not in line:
                self.partitions = sorted(int(part.split("]")[0]) for part in partitions.split("[")[1:])
            elif "revoked" in line:
                self.partitions = []

    def leave(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        for thread in self._threads:
            thread.join()
