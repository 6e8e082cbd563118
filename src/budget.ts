/** What one slice may still spend; pure arithmetic. */

export interface Budget {
  /** No call begins after so many ms. */
  softMs: number;
  /** Everything is cut at so many ms. */
  hardMs: number;
  /** Model calls, fetches of tools; Infinity for no limit. */
  turns: number;
  subrequests: number;
}

export const defaultBudget: Budget = {
  softMs: 25_000,
  hardMs: 600_000,
  turns: Infinity,
  subrequests: Infinity,
};

/** Subrequests that are kept back for the last commits, the hand-over and their repeats. */
const reserve = 8;

export class Spending {
  turns = 0;
  subrequests = 0;
  constructor(readonly budget: Budget, readonly since: number) {}

  spent(now: number): boolean {
    return this.turns >= this.budget.turns || this.leftMs(now) <= 0 ||
      this.subrequests + reserve >= this.budget.subrequests;
  }

  leftMs(now: number): number {
    return this.since + this.budget.softMs - now;
  }
}
