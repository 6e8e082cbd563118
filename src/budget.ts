/** What one slice may still spend; pure arithmetic. */

export interface Budget {
  /** No call begins after so many ms. */
  softMs: number;
  /** Everything is cut at so many ms. */
  hardMs: number;
  /** Model calls; Infinity for no limit. */
  turns: number;
  /** What platforms count of an invocation: all that is asked of the store, of models, and by tools; Infinity for no limit. */
  subrequests: number;
}

export const defaultBudget: Budget = {
  softMs: 25_000,
  hardMs: 600_000,
  turns: Infinity,
  subrequests: Infinity,
};

/** Subrequests that are kept back for the end of what is under way, the hand-over, their repeats, and scripts that Redis does not know yet. */
const reserve = 12;
/** With only these left all is cut, or else the hand-over would not get through. */
const last = 6;

export class Spending {
  turns = 0;
  subrequests = 0;
  constructor(readonly budget: Budget, readonly since: number) {}

  turn(): void {
    this.turns++;
    this.subrequests++;
  }

  /** A request of a tool. What the end of the slice needs is not a tool's to take. */
  fetch(): void {
    if (this.exhausted) throw new Error("The limit of requests at once is reached. Ask for less, or again");
    this.subrequests++;
  }

  spent(now: number): boolean {
    return this.turns >= this.budget.turns || this.leftMs(now) <= 0 || this.scarce;
  }

  /** No call begins, and nothing is spent on those who watch. */
  get scarce(): boolean {
    return this.subrequests + reserve >= this.budget.subrequests;
  }

  get exhausted(): boolean {
    return this.subrequests + last >= this.budget.subrequests;
  }

  leftMs(now: number): number {
    return this.since + this.budget.softMs - now;
  }
}
