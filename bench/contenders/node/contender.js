// Node's contender: node-redlock, doing the job that its only argument
// describes. docs/performance.md says what is measured.
//
// Version 4.2.0 is the newest that is not a beta.
// - retryCount is -1, documented as "unlimited retries until the lock is
//   acquired". Delay (200 ms) and jitter (up to 100 ms) are the defaults, because
//   the documentation recommends no others.
// - One ioredis connection for each node, as documented, with auto pipelining:
//   ioredis documents it as what to turn on for throughput, and it sends all
//   requests of one turn of the event loop in one write.
// - It waits for the answers of all nodes, and ioredis waits for ever. So on
//   several nodes a request has a time-out: 50 ms, the most that the description
//   of Redlock recommends for a ttl of 10 s, but 2 s for many tasks, whose
//   requests queue for longer than 50 ms in the process itself.
// - It does not renew by itself (version 5 would), so there are no leases.

import { once } from "node:events";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import Redis from "ioredis";
import Redlock from "redlock";

// Errors, as opposed to refusals, are answered by asking again for so long.
const PATIENCE_MS = 60_000;

function say(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

class Locks {
  constructor(clients, ttl) {
    this.ttl = ttl;
    this.redlock = new Redlock(clients, { retryCount: -1 });
    this.failed = 0;
    this.redlock.on("clientError", (error) => this.complain(error.message));
  }

  static async connect({ nodes, tasks, ttl_ms }) {
    const clients = nodes.map((node) => new Redis(node, { lazyConnect: true, enableAutoPipelining: true }));
    await Promise.all(clients.map((client) => client.connect()));
    // Not before: connecting takes longer than a request.
    if (nodes.length > 1) for (const client of clients) client.options.commandTimeout = tasks <= 16 ? 50 : 2000;
    return new Locks(clients, ttl_ms);
  }

  /** Where there are many errors, the first tells what it is about. */
  complain(message) {
    if (this.failed++ === 0) console.error("the first error:", message);
  }

  async acquire(name) {
    const asked = performance.now();
    for (;;) {
      try {
        return await this.redlock.lock(name, this.ttl);
      } catch (error) {
        if (performance.now() - asked > PATIENCE_MS) throw error;
      }
    }
  }

  async release(lock) {
    try {
      await lock.unlock();
    } catch (error) {
      if (!(error instanceof Redlock.LockError)) throw error;
      this.complain(error.message);
    }
  }
}

// A cycle counts when its lock was had before the time was up. A wait that
// lasts longer is waited for and given back, but neither counted nor timed.
async function cycles(job, locks, commands) {
  await warmUp(job, locks);
  locks.failed = 0;
  if (!(await commands.ready())) return;
  const holdMs = job.hold_us / 1000;
  const pauseMs = job.pause_us / 1000;
  const start = performance.now();
  const deadline = start + job.seconds * 1000;
  const most = job.cycles ? Math.ceil(job.cycles / job.tasks) : Infinity;
  let end = job.cycles ? start : deadline;
  let heldMs = 0;
  let completed = 0; // those that came too late to count, too
  const waits = [];
  const whole = [];

  async function run(task) {
    let count = 0;
    for (let i = 0; i < most && performance.now() < deadline; i++) {
      const name = job.distinct > 0 ? `${job.name}:${task}:${i % job.distinct}` : job.name;
      const asked = performance.now();
      const lock = await locks.acquire(name);
      const had = performance.now();
      if (holdMs > 0) await sleep(holdMs);
      const releasing = performance.now();
      await locks.release(lock);
      const released = performance.now();
      completed++;
      if (had < deadline) {
        count++;
        heldMs += releasing - had;
        end = Math.max(end, released);
        if (job.samples) {
          waits.push(Math.round((had - asked) * 1000));
          whole.push(Math.round((released - asked) * 1000));
        }
      }
      if (pauseMs > 0) await sleep(pauseMs);
    }
    return count;
  }

  const tasks = await Promise.all(Array.from({ length: job.tasks }, (_, task) => run(task)));
  say({
    event: "done",
    cycles: tasks.reduce((sum, count) => sum + count, 0),
    completed,
    elapsed_us: Math.round((end - start) * 1000),
    held_us: Math.round(heldMs * 1000),
    failed: locks.failed,
    tasks,
    ...(job.samples && { waits_us: waits }),
    ...(job.samples && job.distinct > 0 && { cycles_us: whole }),
  });
  await commands.end();
}

// Scripts are loaded and the code is compiled before anything is measured: a
// thousand cycles, for V8 compiles what has been run often, or a second of them.
async function warmUp(job, locks) {
  const each = Math.max(2, Math.ceil(1000 / job.tasks));
  const limit = performance.now() + 1000;
  await Promise.all(
    Array.from({ length: job.tasks }, async (_, task) => {
      for (let i = 0; i < each && performance.now() < limit; i++) {
        await locks.release(await locks.acquire(`${job.name}:warm:${process.pid}:${task}`));
      }
    }),
  );
}

async function hold(job, locks, commands) {
  if (!(await commands.ready())) return;
  const lock = await locks.acquire(job.name);
  say({ event: "held" });
  await commands.end();
  await locks.release(lock);
}

async function wait(job, locks, commands) {
  if (!(await commands.ready())) return;
  const releases = new Set();
  const waiting = Array.from({ length: job.tasks }, async () => {
    const lock = await locks.acquire(job.name);
    say({ event: "got" });
    const release = locks.release(lock);
    releases.add(release);
    await release;
    releases.delete(release);
  });
  // A task that fails ends the job; tasks that wait for ever do not keep it up.
  await Promise.race([commands.end(), Promise.all(waiting).then(() => commands.end())]);
  await Promise.all(releases);
}

/** The lines on standard input; `end` and the end of the input are the same. */
class Commands {
  constructor() {
    const lines = readline.createInterface({ input: process.stdin });
    this.first = Promise.race([once(lines, "line").then(([line]) => line), once(lines, "close").then(() => "end")]);
    this.over = new Promise((resolve) => {
      lines.on("line", (line) => line.trim() === "end" && resolve());
      lines.on("close", resolve);
    });
  }

  /** False when the job is over before it began. */
  async ready() {
    say({ event: "ready" });
    return (await this.first).trim() !== "end";
  }

  end() {
    return this.over;
  }
}

async function main() {
  const job = JSON.parse(process.argv[2] ?? "");
  const modes = { cycles, hold, wait };
  if (job.lock !== "node-redlock") throw new Error(`no such lock: ${job.lock}`);
  if (job.mode === "leases") throw new Error("node-redlock does not renew by itself");
  if (!Object.hasOwn(modes, job.mode)) throw new Error(`no such mode: ${job.mode}`);
  const locks = await Locks.connect(job);
  await modes[job.mode](job, locks, new Commands());
}

// Exits by itself only after what was said is written, and then at once: tasks
// may still wait for a lock that they will never get.
function exit(code) {
  process.stdout.write("", () => process.exit(code));
}

main().then(
  () => exit(0),
  (error) => {
    say({ event: "error", message: error.message });
    exit(1);
  },
);
