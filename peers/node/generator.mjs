// The shapes of work, as peers/src/generate.rs has them: pairs and cycle, one request in flight per client.
// Only steps that end while the round is open count; the figure is that of the slower side.
// A library has publish(), claim() and ack(job), or consume(count, state) if it claims by itself, and
// close(expected), which may return how many jobs are left.

const WARMUP_MS = 1000;

class RoundState {
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

async function publisher(library, state) {
  while (!state.closed) {
    await state.timed('publish', library.publish());
    state.published += 1;
  }
}

async function cycler(library, state) {
  while (!state.closed) {
    await state.timed('publish', library.publish());
    state.published += 1;
    await consumeOne(library, state);
  }
}

async function claimer(library, state) {
  while (!state.closed) await consumeOne(library, state);
}

async function consumeOne(library, state) {
  const job = await state.timed('claim', claimed(library, state));
  if (job === undefined) return;
  state.claimed += 1;
  await state.timed('ack', library.ack(job));
  state.acked += 1;
}

// Asks until there is a job, or until the round is closed.
async function claimed(library, state) {
  let job = await library.claim();
  while (job === undefined && !state.closed) job = await library.claim();
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

// Runs the order given on the command line with the library that `open` makes, and prints the result.
export async function main(open) {
  const order = JSON.parse(process.argv[2]);
  const state = new RoundState();
  const library = await open({ ...order, data: JSON.parse(order.body) });
  const many = (count, client) =>
    Array.from({ length: count }, () => client(library, state).catch((error) => state.problem(error)));
  let tasks;
  if (order.work === 'cycle') {
    tasks = many(order.clients, cycler);
  } else {
    const half = Math.floor(order.clients / 2);
    const consumers = order.clients - half;
    if (library.consume) {
      await library.consume(consumers, state);
      tasks = many(half, publisher);
    } else {
      tasks = [...many(half, publisher), ...many(consumers, claimer)];
    }
  }

  await state.open(WARMUP_MS);
  const before = { published: state.published, acked: state.acked };
  state.times = { publish: [], claim: [], ack: [] };
  const openedAt = performance.now();
  await state.open(order.seconds * 1000);
  state.closed = true;
  const published = state.published - before.published;
  const done = {
    jobs: Math.min(published, state.acked - before.acked),
    published,
    seconds: (performance.now() - openedAt) / 1000,
    steps: steps(state.times),
  };

  await Promise.all(tasks);
  const expected = () => state.published - state.acked;
  const left = await library.close(expected);
  if (left !== undefined && left !== expected()) {
    state.problems.push(`${left} jobs are left of ${state.published} published and ${state.acked} acknowledged`);
  }
  if (state.claimed !== state.acked || state.claimed > state.published) {
    const { published, claimed, acked } = state;
    state.problems.push(`published ${published}, claimed ${claimed}, acknowledged ${acked}`);
  }
  console.log(JSON.stringify({ ...done, problems: state.problems.slice(0, 5) }));
  process.exit(0);
}
