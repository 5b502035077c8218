/* SPDX-License-Identifier: Apache-2.0
 * What this library shows to its sister, winattn_models (host/models/), of its
 * inner functions. */
#ifndef WINATTN_SISTER_H
#define WINATTN_SISTER_H

#include "winattn.h"

/* Stands before each function that the sister calls; tests/checks/symbols
 * finds them by it. These have no stable interface: a sister of another
 * version refuses to work (host/models/levels.c). */
#define WA_SISTER WINATTN_API

/* What leaves a library meets the names of all others in a program, and one of
 * its own called wa_fail would be taken for this library's. */
#define wa_append wa_winattn_append
#define wa_append_half_vectors wa_winattn_append_half_vectors
#define wa_append_matrix_unit_options wa_winattn_append_matrix_unit_options
#define wa_append_option wa_winattn_append_option
#define wa_cache_trouble wa_winattn_cache_trouble
#define wa_chain_append wa_winattn_chain_append
#define wa_chain_begin wa_winattn_chain_begin
#define wa_chain_end wa_winattn_chain_end
#define wa_chain_event wa_winattn_chain_event
#define wa_chain_go_on wa_winattn_chain_go_on
#define wa_check_memory wa_winattn_check_memory
#define wa_check_process wa_winattn_check_process
#define wa_check_queue wa_winattn_check_queue
#define wa_compare_check_numbers wa_winattn_compare_check_numbers
#define wa_describe_tuning wa_winattn_describe_tuning
#define wa_fail wa_winattn_fail
#define wa_fail_cl wa_winattn_fail_cl
#define wa_fail_memory wa_winattn_fail_memory
#define wa_file_map_close wa_winattn_file_map_close
#define wa_file_map_open wa_winattn_file_map_open
#define wa_file_read wa_winattn_file_read
#define wa_forget_failure wa_winattn_forget_failure
#define wa_give_text wa_winattn_give_text
#define wa_global_lock_release wa_winattn_global_lock_release
#define wa_global_lock_take wa_winattn_global_lock_take
#define wa_has_word wa_winattn_has_word
#define wa_is_forked wa_winattn_is_forked
#define wa_lock_create wa_winattn_lock_create
#define wa_lock_destroy wa_winattn_lock_destroy
#define wa_lock_release wa_winattn_lock_release
#define wa_lock_take wa_winattn_lock_take
#define wa_make_buffer wa_winattn_make_buffer
#define wa_may_pass wa_winattn_may_pass
#define wa_offer_rows wa_winattn_offer_rows
#define wa_pick_check_number wa_winattn_pick_check_number
#define wa_program_set_keep wa_winattn_program_set_keep
#define wa_program_set_keeps wa_winattn_program_set_keeps
#define wa_program_set_origin wa_winattn_program_set_origin
#define wa_read_numbers wa_winattn_read_numbers
#define wa_read_struct wa_winattn_read_struct
#define wa_read_tuning wa_winattn_read_tuning
#define wa_row_check wa_winattn_row_check
#define wa_row_fits wa_winattn_row_fits
#define wa_session_acquire wa_winattn_session_acquire
#define wa_session_check_kernel wa_winattn_session_check_kernel
#define wa_session_check_matrix_unit wa_winattn_session_check_matrix_unit
#define wa_session_context wa_winattn_session_context
#define wa_session_device wa_winattn_session_device
#define wa_session_device_id wa_winattn_session_device_id
#define wa_session_find_spills wa_winattn_session_find_spills
#define wa_session_is_inherited wa_winattn_session_is_inherited
#define wa_session_kernel wa_winattn_session_kernel
#define wa_session_programs wa_winattn_session_programs
#define wa_session_release wa_winattn_session_release
#define wa_session_test_once wa_winattn_session_test_once
#define wa_set_arg wa_winattn_set_arg
#define wa_tier_name wa_winattn_tier_name
#define wa_tier_refusal wa_winattn_tier_refusal
#define wa_zeros_begin wa_winattn_zeros_begin
#define wa_zeros_end wa_winattn_zeros_end

#endif
