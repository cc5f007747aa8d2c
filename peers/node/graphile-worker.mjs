// graphile-worker with its defaults: a worker does not wait until the completion of its job is written.
// It has no claim by hand, so in a cycle a client waits until one of its workers has done the job.
import { Logger, run } from 'graphile-worker';
import pg from 'pg';

import { main } from './generator.mjs';

await main(async ({ store, queue: schema, work, clients, data }) => {
  const pgPool = new pg.Pool({ connectionString: store, max: clients + 1 });
  const logger = new Logger(() => () => {});
  const added = [];
  const finished = new Set();
  const waiting = new Map();
  let runner;
  const begin = async (concurrency, onClaimed, onFinished) => {
    const taskList = { job: async () => onClaimed() };
    runner = await run({ pgPool, schema, taskList, concurrency, logger, noHandleSignals: true });
    runner.events.on('job:complete', ({ job, error }) => onFinished(job.id, error));
  };
  if (work === 'cycle') {
    // Whichever is first, the end of the job or the client that waits for it.
    await begin(clients, () => {}, (id) => {
      const resolve = waiting.get(id);
      if (resolve === undefined) finished.add(id);
      else resolve();
      waiting.delete(id);
    });
  }
  return {
    async publish() {
      const { id } = await runner.addJob('job', data);
      if (work === 'cycle') added.push(id);
    },
    claim: async () => added.shift(),
    async ack(id) {
      if (!finished.delete(id)) await new Promise((resolve) => waiting.set(id, resolve));
    },
    async consume(concurrency, state) {
      const onClaimed = () => {
        state.claimed += 1;
      };
      await begin(concurrency, onClaimed, (_id, error) => {
        if (error) state.problem(error);
        state.acked += 1;
      });
    },
    async close(expected) {
      await runner.stop();
      const count = async () =>
        (await pgPool.query(`SELECT count(*)::int AS left FROM ${schema}._private_jobs`)).rows[0].left;
      // The last completions may still be on their way.
      let left = await count();
      for (let look = 0; look < 50 && left !== expected(); look += 1) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        left = await count();
      }
      await pgPool.query(`DROP SCHEMA ${schema} CASCADE`);
      await pgPool.end();
      return left;
    },
  };
});
