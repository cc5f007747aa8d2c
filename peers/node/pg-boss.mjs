// pg-boss: send, fetch of one, complete. Its own upkeep is off, as a round is too short for it.
import PgBoss from 'pg-boss';
import pg from 'pg';

import { main } from './generator.mjs';

await main(async ({ store, queue: schema, clients, data }) => {
  const boss = new PgBoss({ connectionString: store, schema, max: clients, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue('jobs');
  return {
    publish: () => boss.send('jobs', data),
    async claim() {
      const [job] = await boss.fetch('jobs', { batchSize: 1 });
      return job;
    },
    ack: (job) => boss.complete('jobs', job.id),
    async close() {
      await boss.stop({ graceful: false, wait: true });
      const client = new pg.Client({ connectionString: store });
      await client.connect();
      await client.query(`DROP SCHEMA ${schema} CASCADE`);
      await client.end();
    },
  };
});
