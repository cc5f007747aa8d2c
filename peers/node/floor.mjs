// The shapes of work, as crates/peers/src/generate.rs has them: pairs and cycle, one request in flight per client.
// Only what ends while the round is open counts; the figure is that of the slower side.
// A library gives publish(), claim() and ack(job), or consume(count, floor) where it claims by itself, and
// close(expected), which may tell how many jobs are left.

const WARMUP_MS = 1000;

class Floor {
  published = 0;
  claimed = 0;
  acked = 0;
  closed = false;
  problems = [];
  times = { publish: [], claim: [], ack: [] };

  problem(error) {
    this.problems.push(String(error?.message ?? error));
    this.closed = true;
    this.broken?.();
  }

  async timed(step, promise) {
    const askedAt = performance.now();
    const answer = await promise;
    this.times[step].push(performance.now() - askedAt);
    return answer;
  }

  // Waits, though not past the first problem.
  open(ms) {
    if (this.closed) return undefined;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.broken = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

async function publisher(library, floor) {
  while (!floor.closed) {
    await floor.timed('publish', library.publish());
    floor.published += 1;
  }
}

async function cycler(library, floor) {
  while (!floor.closed) {
    await floor.timed('publish', library.publish());
    floor.published += 1;
    await consumeOne(library, floor);
  }
}

async function claimer(library, floor) {
  while (!floor.closed) await consumeOne(library, floor);
}

async function consumeOne(library, floor) {
  const job = await floor.timed('claim', claimed(library, floor));
  if (job === undefined) return;
  floor.claimed += 1;
  await floor.timed('ack', library.ack(job));
  floor.acked += 1;
}

// Asks until there is a job, or until nobody counts any more.
async function claimed(library, floor) {
  let job = await library.claim();
  while (job === undefined && !floor.closed) job = await library.claim();
  return job;
}

function steps(times) {
  return Object.entries(times)
    .filter(([, values]) => values.length > 0)
    .map(([name, values]) => {
      const sorted = Float64Array.from(values).sort();
      const at = (quantile) => sorted[Math.min(sorted.length - 1, Math.floor(quantile * sorted.length))];
      return { name, p50_ms: at(0.5), p99_ms: at(0.99) };
    });
}

// Runs the order given on the command line with the library that `open` makes, and prints what came of it.
export async function main(open) {
  const order = JSON.parse(process.argv[2]);
  const floor = new Floor();
  const library = await open({ ...order, data: JSON.parse(order.body) });
  const many = (count, client) =>
    Array.from({ length: count }, () => client(library, floor).catch((error) => floor.problem(error)));
  let tasks;
  if (order.work === 'cycle') {
    tasks = many(order.clients, cycler);
  } else {
    const half = Math.floor(order.clients / 2);
    const consumers = order.clients - half;
    if (library.consume) {
      await library.consume(consumers, floor);
      tasks = many(half, publisher);
    } else {
      tasks = [...many(half, publisher), ...many(consumers, claimer)];
    }
  }

  await floor.open(WARMUP_MS);
  const before = { published: floor.published, acked: floor.acked };
  floor.times = { publish: [], claim: [], ack: [] };
  const openedAt = performance.now();
  await floor.open(order.seconds * 1000);
  floor.closed = true;
  const published = floor.published - before.published;
  const done = {
    jobs: Math.min(published, floor.acked - before.acked),
    published,
    seconds: (performance.now() - openedAt) / 1000,
    steps: steps(floor.times),
  };

  await Promise.all(tasks);
  const expected = () => floor.published - floor.acked;
  const left = await library.close(expected);
  if (left !== undefined && left !== expected()) {
    floor.problems.push(`${left} jobs are left of ${floor.published} published and ${floor.acked} acknowledged`);
  }
  if (floor.claimed !== floor.acked || floor.claimed > floor.published) {
    const { published, claimed, acked } = floor;
    floor.problems.push(`published ${published}, claimed ${claimed}, acknowledged ${acked}`);
  }
  console.log(JSON.stringify({ ...done, problems: floor.problems.slice(0, 5) }));
  process.exit(0);
}
