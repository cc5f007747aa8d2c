// BullMQ: jobs are claimed and acknowledged by its Worker, which does both in one call to Redis.
import { Queue, Worker } from 'bullmq';

import { main } from './generator.mjs';

await main(async ({ store, queue: name, data }) => {
  const { hostname, port } = new URL(store);
  const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
  const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  // For claims by hand; it does not run by itself.
  const hand = new Worker(name, null, { connection });
  await hand.waitUntilReady();
  const token = 'by-hand';
  let worker;
  return {
    publish: () => queue.add('job', data),
    claim: async () => (await hand.getNextJob(token)) ?? undefined,
    ack: (job) => job.moveToCompleted(null, token, false),
    async consume(concurrency, state) {
      const processor = async () => {
        state.claimed += 1;
      };
      worker = new Worker(name, processor, { connection, concurrency });
      worker.on('completed', () => {
        state.acked += 1;
      });
      worker.on('failed', (_job, error) => state.problem(error));
      worker.on('error', (error) => state.problem(error));
      await worker.waitUntilReady();
    },
    async close() {
      await worker?.close();
      await hand.close();
      await queue.obliterate({ force: true });
      await queue.close();
    },
  };
});
