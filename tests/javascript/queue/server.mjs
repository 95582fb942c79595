// Clients for the server that the tests are given, and what they say again and again.

import assert from "node:assert/strict";

import { QueueServiceClient } from "@azure/storage-queue";

export const KIB_64 = 64 * 1024;
export const HOUR_MS = 60 * 60 * 1000;

// Without retries: every answer counts.
export const options = { retryOptions: { maxTries: 1 } };

export const service = QueueServiceClient.fromConnectionString(
    process.env.AZURE_STORAGE_CONNECTION_STRING,
    options,
);

let number = 0;

export function unique(prefix = "queue") {
    number += 1;
    return `${prefix}-${process.pid}-${number}`;
}

/** A queue that ends with its test. */
export async function newQueue(t, settings = {}) {
    const queue = service.getQueueClient(unique());
    await queue.create(settings);
    t.after(() => queue.deleteIfExists());
    return queue;
}

/** The one message that is taken. */
export async function take(queue, settings = {}) {
    const { receivedMessageItems } = await queue.receiveMessages(settings);
    assert.equal(receivedMessageItems.length, 1);
    return receivedMessageItems[0];
}

/** The texts that can be seen, at most 32. */
export async function texts(queue) {
    const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 32 });
    return peekedMessageItems.map(({ messageText }) => messageText);
}

/** The error of a request that is refused with just this. */
export async function refused(request, statusCode, code) {
    const error = await request.then(
        () => assert.fail(`it was not refused with ${statusCode} ${code}`),
        (reason) => reason,
    );
    assert.equal(error.name, "RestError", error);
    // An answer without a body names its code in a header only.
    const told = { statusCode: error.statusCode, code: error.code ?? error.details?.errorCode };
    assert.deepEqual(told, { statusCode, code }, error);
    return error;
}

export async function collect(items) {
    const found = [];
    for await (const item of items) found.push(item);
    return found;
}

/** A moment some milliseconds from now. */
export const fromNow = (milliseconds) => new Date(Date.now() + milliseconds);
