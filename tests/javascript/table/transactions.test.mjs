// Entity group transactions.

import assert from "node:assert/strict";
import test from "node:test";

import { TableTransaction } from "@azure/data-tables";

import { newTable, refused, rows } from "./clients.mjs";

const entity = (rowKey, more = {}) => ({ partitionKey: "p", rowKey, ...more });

test("every operation", async (t) => {
    const table = await newTable(t);
    for (const row of "bcdef") await table.createEntity(entity(row, { Old: 1 }));
    const transaction = new TableTransaction();
    transaction.createEntity(entity("a", { New: 1 }));
    transaction.updateEntity(entity("b", { New: 1 }), "Merge");
    transaction.updateEntity(entity("c", { New: 1 }), "Replace");
    transaction.upsertEntity(entity("d", { New: 1 }), "Merge");
    transaction.upsertEntity(entity("g", { New: 1 }), "Replace");
    transaction.deleteEntity("p", "e");
    const { status, subResponses } = await table.submitTransaction(transaction.actions);
    assert.equal(status, 202);
    assert.deepEqual(
        subResponses.map((each) => each.status),
        [204, 204, 204, 204, 204, 204],
    );
    const { etag } = await table.getEntity("p", "a");
    assert.equal(subResponses[0].etag, etag);
    const listed = [];
    for await (const { rowKey, Old, New } of table.listEntities()) listed.push([rowKey, Old, New]);
    assert.deepEqual(listed, [
        ["a", undefined, 1],
        ["b", 1, 1],
        ["c", undefined, 1],
        ["d", 1, 1],
        ["f", 1, undefined],
        ["g", undefined, 1],
    ]);
});

test("all or nothing", async (t) => {
    const table = await newTable(t);
    await table.createEntity(entity("existing"));
    const failing = [
        [["create", entity("existing")], 409, "EntityAlreadyExists"],
        [["update", entity("missing"), "Merge"], 404, "ResourceNotFound"],
        [["delete", entity("missing")], 404, "ResourceNotFound"],
        [["create", entity("a/b")], 400, "OutOfRangeInput"],
        [["create", entity("1")], 400, "InvalidDuplicateRow"],
    ];
    for (const [action, statusCode, code] of failing) {
        const actions = [["create", entity("1")], action, ["create", entity("2")]];
        const error = await refused(table.submitTransaction(actions), statusCode, code);
        assert.match(error.message, /^1:/);
        assert.deepEqual(await rows(table), ["existing"]);
    }
});

test("at most 100 operations", async (t) => {
    const table = await newTable(t);
    const actions = Array.from({ length: 101 }, (_, at) => ["create", entity(`${at}`)]);
    await refused(table.submitTransaction(actions), 400, "InvalidInput");
    assert.deepEqual(await rows(table), []);
    await table.submitTransaction(actions.slice(1));
    assert.equal((await rows(table)).length, 100);
});

test("transfers are atomic for concurrent readers", async (t) => {
    const table = await newTable(t);
    const opening = ["0", "1", "2", "3"].map((row) => ["create", entity(row, { Money: 100 })]);
    await table.submitTransaction(opening);
    let closed = false;
    async function move() {
        for (let turn = 0; turn < 15; turn += 1) {
            const [from, to] = await Promise.all([
                table.getEntity("p", `${turn % 4}`),
                table.getEntity("p", `${(turn + 1) % 4}`),
            ]);
            const moved = [
                [from, -10],
                [to, 10],
            ].map(([{ rowKey, etag, Money }, change]) => [
                "update",
                entity(rowKey, { Money: Money + change }),
                "Merge",
                { etag },
            ]);
            await table.submitTransaction(moved).catch(({ statusCode }) => {
                assert.equal(statusCode, 412);
            });
        }
    }
    async function audit() {
        while (!closed) {
            let sum = 0;
            for await (const { Money } of table.listEntities()) sum += Money;
            assert.equal(sum, 400);
        }
    }
    const audits = [audit(), audit()];
    await Promise.all([move(), move()]).finally(() => {
        closed = true;
    });
    await Promise.all(audits);
});
