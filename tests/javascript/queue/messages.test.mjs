// Messages: sending, receiving, peeking, updating and deleting.

import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout as wait } from "node:timers/promises";

import { KIB_64, newQueue, refused, take, texts } from "./clients.mjs";

const WEEK_MS = 7 * 24 * 60 * 60 * 1000;
const OUT_OF_RANGE = "OutOfRangeQueryParameterValue";

test("a new message", async (t) => {
    const queue = await newQueue(t);
    const sent = await queue.sendMessage("hello");
    assert.equal(sent._response.status, 201);
    assert.equal(sent.expiresOn - sent.insertedOn, WEEK_MS);
    assert.deepEqual(sent.nextVisibleOn, sent.insertedOn);
    const [seen] = (await queue.peekMessages()).peekedMessageItems;
    assert.equal(seen.messageId, sent.messageId);
    assert.equal(seen.messageText, "hello");
    assert.equal(seen.dequeueCount, 0);
    assert.equal(seen.popReceipt, undefined);
    await queue.deleteMessage(sent.messageId, sent.popReceipt);
    assert.deepEqual(await texts(queue), []);
});

test("times to live", async (t) => {
    const queue = await newQueue(t);
    const forEver = await queue.sendMessage("text", { messageTimeToLive: -1 });
    assert.equal(forEver.expiresOn.getUTCFullYear(), 9999);
    const brief = await queue.sendMessage("text", { messageTimeToLive: 60 });
    assert.equal(brief.expiresOn - brief.insertedOn, 60_000);
    for (const messageTimeToLive of [0, -2]) {
        await refused(queue.sendMessage("text", { messageTimeToLive }), 400, OUT_OF_RANGE);
    }
    const hiddenToItsEnd = { messageTimeToLive: 60, visibilityTimeout: 60 };
    await refused(queue.sendMessage("text", hiddenToItsEnd), 400, OUT_OF_RANGE);
});

test("visibility timeouts", async (t) => {
    const queue = await newQueue(t);
    await queue.sendMessage("late", { visibilityTimeout: 5 });
    await queue.sendMessage("received");
    const received = await take(queue, { visibilityTimeout: 5 });
    assert.equal(received.messageText, "received");
    assert.deepEqual(await texts(queue), []);
    await wait(5_100);
    assert.deepEqual(await texts(queue), ["late", "received"]);
    // Its receipt is still valid.
    await queue.deleteMessage(received.messageId, received.popReceipt);
    assert.deepEqual(await texts(queue), ["late"]);
});

test("numbers of messages", async (t) => {
    const queue = await newQueue(t);
    for (let number = 0; number < 35; number += 1) await queue.sendMessage(`${number}`);
    assert.equal((await queue.getProperties()).approximateMessagesCount, 35);
    const { receivedMessageItems } = await queue.receiveMessages({ numberOfMessages: 32 });
    assert.deepEqual(
        receivedMessageItems.map(({ messageText }) => messageText),
        Array.from({ length: 32 }, (_, number) => `${number}`),
    );
    assert.deepEqual(await texts(queue), ["32", "33", "34"]);
    for (const numberOfMessages of [0, 33]) {
        await refused(queue.receiveMessages({ numberOfMessages }), 400, OUT_OF_RANGE);
        await refused(queue.peekMessages({ numberOfMessages }), 400, OUT_OF_RANGE);
    }
    await refused(queue.receiveMessages({ visibilityTimeout: 0 }), 400, OUT_OF_RANGE);
});

test("receipts", async (t) => {
    const queue = await newQueue(t);
    const { messageId } = await queue.sendMessage("text");
    const received = await take(queue);
    const shown = await queue.updateMessage(messageId, received.popReceipt, undefined, 0);
    assert.notEqual(shown.popReceipt, received.popReceipt);
    const again = await take(queue);
    assert.equal(again.dequeueCount, 2);
    assert.equal(again.messageText, "text");
    for (const { popReceipt } of [received, shown]) {
        await refused(queue.deleteMessage(messageId, popReceipt), 404, "MessageNotFound");
    }
    await refused(queue.deleteMessage(messageId, "nonsense"), 400, "InvalidQueryParameterValue");
    await refused(queue.deleteMessage("nonsense", again.popReceipt), 404, "MessageNotFound");
    await queue.deleteMessage(messageId, again.popReceipt);
    await refused(queue.deleteMessage(messageId, again.popReceipt), 404, "MessageNotFound");
});

test("updates", async (t) => {
    const queue = await newQueue(t);
    let { messageId, popReceipt } = await queue.sendMessage("short", { messageTimeToLive: 60 });
    for (const text of ["x".repeat(KIB_64), "s", "é".repeat(2_000), ""]) {
        ({ popReceipt } = await queue.updateMessage(messageId, popReceipt, text, 0));
        assert.deepEqual(await texts(queue), [text]);
    }
    await refused(queue.updateMessage(messageId, popReceipt, "late", 61), 400, OUT_OF_RANGE);
    const hidden = await queue.updateMessage(messageId, popReceipt, "hidden", 30);
    assert.ok(hidden.nextVisibleOn > Date.now() + 25_000);
    assert.deepEqual(await texts(queue), []);
});

test("clearing a queue", async (t) => {
    const queue = await newQueue(t);
    const hidden = await queue.sendMessage("hidden", { visibilityTimeout: 60 });
    await queue.sendMessage("seen");
    assert.equal((await queue.clearMessages())._response.status, 204);
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
    const late = queue.deleteMessage(hidden.messageId, hidden.popReceipt);
    await refused(late, 404, "MessageNotFound");
    await queue.sendMessage("next");
    assert.deepEqual(await texts(queue), ["next"]);
});

for (const text of ["", " x ", "a\tb", "<a b='c'>&amp;</a>", "]]>", "été 書棚 🦄", "&lt;", "\"'"]) {
    test(`the text ${JSON.stringify(text)}`, async (t) => {
        const queue = await newQueue(t);
        await queue.sendMessage(text);
        assert.deepEqual(await texts(queue), [text]);
        assert.equal((await take(queue)).messageText, text);
    });
}

test("64 KiB, and one byte more", async (t) => {
    const queue = await newQueue(t);
    for (const [character, bytesEach] of [["x", 1], ["é", 2], ["🦄", 4]]) {
        const text = character.repeat(KIB_64 / bytesEach);
        await queue.sendMessage(text);
        assert.equal((await take(queue)).messageText, text);
        await refused(queue.sendMessage(`${text}.`), 413, "RequestBodyTooLarge");
    }
});

test("concurrent clients", async (t) => {
    const queue = await newQueue(t);
    const sent = Array.from({ length: 64 }, (_, number) => `${number}`);
    await Promise.all(sent.map((text) => queue.sendMessage(text)));
    const consume = async () => {
        const done = [];
        for (;;) {
            const { receivedMessageItems } = await queue.receiveMessages({ numberOfMessages: 3 });
            if (receivedMessageItems.length === 0) return done;
            for (const { messageId, popReceipt, messageText } of receivedMessageItems) {
                await queue.deleteMessage(messageId, popReceipt);
                done.push(messageText);
            }
        }
    };
    const done = await Promise.all(Array.from({ length: 16 }, consume));
    assert.deepEqual(done.flat().sort(), sent.sort());
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
});
