-- Facts carry engine time. Where the wall clock differed from it by a second or more, a fact also says by how much, so that
-- timelines and receipts show the time of day.
ALTER TABLE facts ADD COLUMN wall_offset_us INTEGER;
