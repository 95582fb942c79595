// Queue clients for the server under test.

import assert from "node:assert/strict";

import { QueueServiceClient } from "@azure/storage-queue";

import { nextNumber } from "../harness.mjs";

export * from "../harness.mjs";

export const KIB_64 = 64 * 1024;

// No retries: a test must see every response.
export const options = { retryOptions: { maxTries: 1 } };

export const service = QueueServiceClient.fromConnectionString(
    process.env.AZURE_STORAGE_CONNECTION_STRING,
    options,
);

export const unique = (prefix = "queue") => `${prefix}-${process.pid}-${nextNumber()}`;

/** Creates a queue that is deleted after the test. */
export async function newQueue(t, settings = {}) {
    const queue = service.getQueueClient(unique());
    await queue.create(settings);
    t.after(() => queue.deleteIfExists());
    return queue;
}

/** Receives exactly one message. */
export async function take(queue, settings = {}) {
    const { receivedMessageItems } = await queue.receiveMessages(settings);
    assert.equal(receivedMessageItems.length, 1);
    return receivedMessageItems[0];
}

/** Returns the texts of the visible messages, at most 32. */
export async function texts(queue) {
    const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 32 });
    return peekedMessageItems.map(({ messageText }) => messageText);
}
