/* SPDX-License-Identifier: Apache-2.0
 * Pictures that nobody draws. */
#include "bombs.h"

#include <stdlib.h>
#include <string.h>

const char *const golden_pictures[] = {
    "wide.ppm",
    "grey.ppm",
    "colour.png",
    "grey.png",
    "alpha.png",
    "palette.png",
    "bits.png",
    "interlaced.png",
    "wide.png",
    "turned_2.png",
    "turned_3.png",
    "turned_4.png",
    "turned_5.png",
    "turned_6.png",
    "turned_7.png",
    "turned_8.png",
    "interlaced_turned.png",
    "colour.jpg",
    "progressive.jpg",
    "grey.jpg",
    "turned_3.jpg",
    "turned_6.jpg",
    "cmyk.jpg",
    "ycck.jpg",
    "inks.jpg",
    NULL,
};

/* No file says more with less than this. */
#define PADDING 40000u

static void put(bomb *b, const void *bytes, size_t count)
{
    b->bytes = realloc(b->bytes, b->size + count + 1);
    if (!b->bytes)
        abort();
    if (count)
        memcpy(b->bytes + b->size, bytes, count);
    b->size += count;
}

static void put_zeros(bomb *b, size_t count)
{
    unsigned char *zeros = calloc(count + 1, 1);
    put(b, zeros, count);
    free(zeros);
}

/* A number of `size` bytes, the upper one first. */
static void put_number(bomb *b, uint32_t number, unsigned size)
{
    while (size-- > 0) {
        const unsigned char byte = (unsigned char)(number >> 8 * size);
        put(b, &byte, 1);
    }
}

/* ---- PNG ---- */

static uint32_t crc_of(const unsigned char *bytes, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

void png_mend(unsigned char *png, size_t size)
{
    size_t at = 8;
    while (at + 12 <= size) {
        size_t length = 0;
        for (int i = 0; i < 4; i++)
            length = length << 8 | png[at + i];
        if (length > size - at - 12)
            return;
        const uint32_t crc = crc_of(png + at + 4, length + 4);
        at += length + 12;
        for (int i = 0; i < 4; i++)
            png[at - 4 + i] = (unsigned char)(crc >> (24 - 8 * i));
    }
}

static void put_chunk(bomb *b, const char *name, bomb data)
{
    put_number(b, (uint32_t)data.size, 4);
    put(b, name, 4);
    put(b, data.bytes, data.size);
    put_number(b, 0, 4);
    free(data.bytes);
}

static bomb start_png(uint32_t height, uint32_t width, unsigned depth)
{
    bomb b = {0}, header = {0};
    put(&b, "\x89PNG\r\n\x1a\n", 8);
    put_number(&header, width, 4);
    put_number(&header, height, 4);
    put_number(&header, depth << 8 | 6, 2);
    put_number(&header, 0, 3);
    put_chunk(&b, "IHDR", header);
    return b;
}

static bomb end_png(bomb b, bomb pixels)
{
    put_chunk(&b, "IDAT", pixels);
    put_chunk(&b, "IEND", (bomb){0});
    png_mend(b.bytes, b.size);
    return b;
}

bomb bomb_png(uint32_t height, uint32_t width, unsigned depth, size_t data)
{
    bomb pixels = {0};
    put(&pixels, "\x78\x01", 2);
    for (; data > 0; data -= data < 50000 ? data : 50000) {
        const size_t part = data < 50000 ? data : 50000;
        const unsigned char head[] = {
            0, (unsigned char)part, (unsigned char)(part >> 8),
            (unsigned char)~part, (unsigned char)(~part >> 8)};
        put(&pixels, head, sizeof head);
        put_zeros(&pixels, part);
    }
    put_zeros(&pixels, PADDING);
    return end_png(start_png(height, width, depth), pixels);
}

/* Bits of deflate, the first one lowest. */
typedef struct bit_writer {
    bomb *to;
    unsigned bits, count;
} bit_writer;

static void put_bits(bit_writer *w, const char *bits)
{
    for (; *bits; bits++) {
        w->bits |= (unsigned)(*bits == '1') << w->count++;
        if (w->count == 8) {
            put_number(w->to, w->bits, 1);
            w->bits = w->count = 0;
        }
    }
}

/* Deflated: an a, and then matches of 258 bytes, of 13 bits each. */
static bomb deflated_letters(size_t size)
{
    bomb b = {0};
    bit_writer w = {.to = &b};
    const uint64_t matches = size / 258, count = 1 + 258 * matches;
    const uint64_t sum = 1 + 'a' * count; /* Adler-32 has two of them */
    const uint64_t sums = count + 'a' * (count * (count + 1) / 2);
    put(&b, "\x78\x01", 2);
    put_bits(&w, "110" /* fixed codes */ "10010001");
    for (uint64_t i = 0; i < matches; i++)
        put_bits(&w, "1100010100000");
    put_bits(&w, "0000000"); /* the end */
    while (w.count)
        put_bits(&w, "0");
    put_number(&b, (uint32_t)(sums % 65521), 2);
    put_number(&b, (uint32_t)(sum % 65521), 2);
    return b;
}

bomb bomb_texts(size_t count, size_t size)
{
    bomb b = start_png(1, 1, 8), pixels = {0};
    const bomb letters = deflated_letters(size);
    for (size_t i = 0; i < count; i++) {
        bomb text = {0};
        put(&text, "k\0\0", 3);
        put(&text, letters.bytes, letters.size);
        put_chunk(&b, "zTXt", text);
    }
    free(letters.bytes);
    put(&pixels, "\x78\x01\x01\x05\0\xfa\xff\0\0\0\0\0\0\x05\0\x01", 16);
    return end_png(b, pixels);
}

/* ---- JPEG ---- */

static void put_segment(bomb *b, unsigned marker, const void *data,
                        size_t size)
{
    put_number(b, 0xff00 | marker, 2);
    put_number(b, (uint32_t)size + 2, 2);
    put(b, data, size);
}

static void put_scan(bomb *b, unsigned component, unsigned high, unsigned low)
{
    const unsigned char head[] = {1,  (unsigned char)component,        0, 1,
                                  63, (unsigned char)(high << 4 | low)};
    put_segment(b, 0xda, head, sizeof head);
}

bomb bomb_jpeg(unsigned sof, unsigned height, unsigned width, unsigned scans)
{
    bomb b = {0};
    unsigned char tables[65] = {0};
    const size_t blocks = (size_t)((height + 7) / 8) * ((width + 7) / 8);
    const unsigned char frame[] = {8,
                                   (unsigned char)(height >> 8),
                                   (unsigned char)height,
                                   (unsigned char)(width >> 8),
                                   (unsigned char)width,
                                   3,
                                   1,
                                   0x11,
                                   0,
                                   2,
                                   0x11,
                                   0,
                                   3,
                                   0x11,
                                   0};
    memset(tables + 1, 1, 64);
    put_number(&b, 0xffd8, 2);
    put_segment(&b, 0xdb, tables, 65);
    put_segment(&b, sof, frame, sizeof frame);
    /* one code each, 0: no difference, and a run of 2^14 empty blocks and as
     * many as the next 14 bits say */
    put_segment(&b, 0xc4, "\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18);
    put_segment(&b, 0xc4, "\x10\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xe0", 18);
    put_segment(&b, 0xda, "\3\1\0\2\0\3\0\0\0\0", 10);
    put_zeros(&b, blocks * 3 / 8 + PADDING);
    for (unsigned i = 0; i < scans; i++) {
        const unsigned low = 13 - i / 3;
        put_scan(&b, 1 + i % 3, i < 3 ? 0 : low + 1, low);
        for (size_t done = 0; done < blocks; done += 16384 * 8)
            put_zeros(&b, 15);
    }
    put_number(&b, 0xffd9, 2);
    return b;
}
